from graft.testkit import conformance

TestOpenVino = conformance("openvino", level=6, xfail="ledger.txt")
