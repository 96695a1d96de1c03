from graft.testkit import conformance

TestOrt = conformance("ort", level=5, xfail="ledger.txt")
