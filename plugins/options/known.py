"""The options of a backend as they were when it was fenced: what the core reads without asking vendor code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graft.core.backend_spec import OptionValue
from graft.plugins.options.declared import Option
from graft.plugins.options.values import changed, saved, secrets


class KnownOptions:
    """What a backend declares, and the values that it has."""

    def know_options(self, rows: Sequence[Option], values: Mapping[str, OptionValue]) -> None:
        """Keep rows and values."""
        self._option_rows, self._option_values = tuple(rows), dict(values)

    def option_rows(self) -> tuple[Option, ...]:
        """Return the declared options."""
        return self._option_rows

    def option_values(self) -> dict[str, OptionValue]:
        """Return the values of the options, secrets too."""
        return dict(self._option_values)

    @property
    def shown_options(self) -> dict[str, OptionValue]:
        """The options that are not at their defaults, secrets left out."""
        return changed(self._option_rows, self._option_values)

    @property
    def saved_options(self) -> dict[str, Any]:
        """All options as an artifact has them, `SECRET` in the place of secrets."""
        return saved(self._option_rows, self._option_values)

    @property
    def secret_options(self) -> dict[str, OptionValue]:
        """The secrets that were given."""
        return secrets(self._option_rows, self._option_values)
