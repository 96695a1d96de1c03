import doctest

import pytest

from graft.plugins import hooks
from graft.plugins.registry.module_hooks import SPECIFICATIONS


@pytest.mark.parametrize("name", sorted(SPECIFICATIONS))
def test_every_hook_has_an_example_that_runs(name):
    examples = doctest.DocTestFinder().find(getattr(hooks, name), name, globs={})
    assert [bool(one.examples) for one in examples] == [True]
    assert doctest.DocTestRunner().run(examples[0]).failed == 0


def test_the_hooks_are_those_of_the_design():
    assert sorted(SPECIFICATIONS) == [
        "graft_backends",
        "graft_cost_tables",
        "graft_datatypes",
        "graft_machines",
        "graft_module_loaders",
        "graft_operators",
        "graft_passes",
        "graft_region_compiled",
        "graft_report_sections",
        "graft_torch_operators",
    ]
