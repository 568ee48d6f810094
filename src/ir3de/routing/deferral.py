"""Fields of a value that are computed when they are first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import fields
from typing import Any, Generic, TypeVar

T = TypeVar("T")
D = TypeVar("D", bound="Deferrable")


class Once(Generic[T]):
    """A function without arguments that is called once, whoever asks. What it needs is forgotten afterwards."""

    def __init__(self, compute: Callable[[], T]) -> None:
        self._compute: Callable[[], T] | None = compute
        self._lock = threading.Lock()

    def __call__(self) -> T:
        with self._lock:
            if self._compute is not None:
                self._value = self._compute()
                self._compute = None
        return self._value


class Deferrable:
    """A dataclass whose fields may be computed later. Once they are, it is an object like any other.

    A deferred field must have no default in the class. Comparing, replacing and pickling compute it.
    """

    def defer(self: D, fields: Mapping[str, Callable[[], Any]]) -> D:
        """A copy in which these fields are computed when they are first asked for."""
        made = copy(self)  # of a value that has all of its fields
        for name in fields:
            del vars(made)[name]
        vars(made)["_deferred"] = dict(fields)
        return made

    def __getattr__(self, name: str) -> Any:  # called only for attributes that are not there
        compute = vars(self).get("_deferred", {}).get(name)
        if compute is None:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        vars(self)[name] = value = compute()
        vars(self)["_deferred"] = {other: later for other, later in vars(self)["_deferred"].items() if other != name}
        return value

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what was worked out from them may be a function, which cannot be pickled."""
        return {part.name: getattr(self, part.name) for part in fields(self)}  # type: ignore[arg-type]
