from graft.testkit import conformance

TestOpenVino = conformance("openvino", level=1, xfail="ledger.txt")
