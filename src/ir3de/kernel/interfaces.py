"""The objects that the compiled module makes, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class Subjects(Protocol):
    """The subjects of a router, for `measure`."""

    def measure(self, sums: npt.NDArray[Any], tokens: float, best: int, /) -> tuple[float, float]: ...


class Look(Protocol):
    """The quick look whether a prompt is surely in domain."""


class Values(Protocol):
    """What tallies are worth: the experts' probabilities, and the log-odds that the prompt is in domain."""

    def find(
        self, tally: npt.NDArray[np.float64] | bytes, tokens: float, counted: float, /
    ) -> tuple[list[float], float] | None: ...


class Tables(Protocol):
    """The ballots of a router."""

    def decide(
        self, ids: npt.NDArray[Any], tally: npt.NDArray[np.float64], experts: int, look: Look | None, /
    ) -> int: ...

    def decide_many(
        self,
        flat: npt.NDArray[Any],
        starts: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        tallies: npt.NDArray[np.float64],
        bests: npt.NDArray[np.int64],
        experts: int,
        look: Look | None,
        /,
    ) -> None: ...


class Reader(Protocol):
    """What finds the texts that the fast tokenizer may get as they are."""

    def is_plain(self, text: str, /) -> bool: ...

    def find_unusual(self, texts: list[str], /) -> list[int]: ...


class Quick(NamedTuple):
    """What finds the texts that the fast tokenizer gets as they are, and that tokenizer."""

    reader: Reader
    encode: Callable[[list[str], bool], tuple[npt.NDArray[np.uint32], Any]]


class Route(Protocol):
    """From a plain text to its decision, or None for a text that must be examined."""

    def decide(self, text: str, /) -> Any: ...
