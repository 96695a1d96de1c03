from quantised_models import MODELS, OTHERS

from graft.testkit import conformance

TestEthosU = conformance("ethosu", level=5, xfail="ledger.txt", models=[*MODELS.values(), *OTHERS], seeds=8)
