from graft.testkit import conformance

TestLoom = conformance("loom", level=5, xfail="ledger.txt")
