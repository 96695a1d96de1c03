from networks import MODELS

from graft.testkit import conformance

TestRknn = conformance("rknn", level=4, xfail="ledger.txt", models=MODELS, seeds=8)
