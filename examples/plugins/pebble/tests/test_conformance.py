from graft.testkit import conformance

TestPebble = conformance("pebble", level=5, xfail="ledger.txt")
