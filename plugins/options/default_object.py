"""Methods of a backend object that its class has as well, as they were before backends had options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")


class OfDefaults(Generic[Result]):
    """A method without arguments; called on the class, it is that of an object with its default options."""

    def __init__(self, function: Callable[[Any], Result]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, backend: Any, owner: type) -> Callable[[], Result]:
        """Return the method, bound to the object, or to one that is made when it is called."""

        def method() -> Result:
            return self._function(owner() if backend is None else backend)

        method.__doc__ = self.__doc__
        return method
