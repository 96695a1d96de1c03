"""Rows of the table of machines that a plugin gives, checked."""

from __future__ import annotations

from collections.abc import Sequence

from graft.core.machine.machine import Machine
from graft.core.machine.rows import NATIVE, ROWS
from graft.errors import PluginError
from graft.runtime.foreign import kind_of


def checked_machines(plugin: str, given: Sequence[object]) -> list[Machine]:
    """Return the machines that a plugin gave.

    Raises PluginError for what is no machine, and for a name that Graft or the plugin itself has already.
    """
    machines: list[Machine] = []
    for machine in given:
        if not isinstance(machine, Machine):
            raise PluginError(
                f"plugin '{plugin}': graft_machines gave {kind_of(machine)}; give graft.core.machine.machine.Machine "
                "objects",
                plugin=plugin,
            )
        if machine.name in (NATIVE, *ROWS, *(one.name for one in machines)):
            raise PluginError(
                f"plugin '{plugin}' gives a machine called '{machine.name}', which there is already; give it a name of "
                "its own",
                plugin=plugin,
                machine=machine.name,
            )
        machines.append(machine)
    return machines
