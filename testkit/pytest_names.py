"""What the tests of `conformance` and the pytest plugin of the kit call the same things; imports nothing."""

PROPERTY = "graft-conformance"
"""The property of a test's report that holds the results of a group."""
IN_PROCESS = "graft_in_process"
"""The name of the option that runs the cases here."""
