"""Values that are made when they are first read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")


class Lazy(Generic[T]):
    """A value that ``make`` gives once, when it is first read; compared, shown and pickled as that value."""

    __slots__ = ("_make", "_value")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make: Callable[[], T] | None = make
        self._value: T | None = None

    @property
    def value(self) -> T:
        """The value; ``make``, and what it holds, is let go."""
        if (make := self._make) is not None:
            self._value, self._make = make(), None
        return cast(T, self._value)

    @staticmethod
    def of(value: T) -> Lazy[T]:
        """Return what is made already."""
        found = Lazy(lambda: value)
        assert found.value is value
        return found

    def __eq__(self, other: object) -> bool:
        return self.value == other.value if isinstance(other, Lazy) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return repr(self.value)

    def __reduce__(self) -> tuple[Callable[[T], Lazy[T]], tuple[T]]:
        return Lazy.of, (self.value,)


class LazyMapping(Mapping[str, Any]):
    """Values by name, of which those that are `Lazy` are made when they are first read; pickled as a dict."""

    __slots__ = ("_rows",)

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self._rows = rows

    def __getitem__(self, name: str) -> Any:
        found = self._rows[name]
        return found.value if isinstance(found, Lazy) else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return repr(dict(self))

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)
