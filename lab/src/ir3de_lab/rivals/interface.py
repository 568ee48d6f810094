"""What every rival has in common: it is fitted on texts by domain, and then routes texts to those domains."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ir3de.errors import InputError, MissingExtraError

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Fitted:
    """A fitted rival: the names of its domains, and a function that chooses one of them, by place, for each text.

    `parameters` and `size_bytes` are what it has to keep in order to route: the numbers learnt or stored, and the bytes
    of those and of the words or the tokenizer they belong to. What `kept` gives can be passed as it is.
    """

    names: tuple[str, ...]
    choose: Callable[[list[str]], Indices]
    parameters: int
    size_bytes: int

    def route(self, texts: Sequence[str]) -> list[str]:
        """The domain of each text."""
        checked = _checked(texts, "to route")
        return [self.names[i] for i in self.choose(checked)] if checked else []


class Baseline(Protocol):
    """A rival's settings, and how it learns from texts by domain."""

    def fit(self, domains: Mapping[str, Sequence[str]]) -> Fitted: ...


@dataclass(frozen=True)
class Labelled:
    """Training texts in one list, and the place of each one's domain in `names`."""

    names: tuple[str, ...]
    texts: list[str]
    labels: Indices


def labelled(domains: Mapping[str, Sequence[str]]) -> Labelled:
    """The training texts, checked: two domains or more, each with a text."""
    if not isinstance(domains, Mapping) or len(domains) < 2:
        found = list(domains) if isinstance(domains, Mapping) else type(domains).__name__
        raise InputError(f"expected texts by domain, of two domains or more, found {found}: name another domain")
    texts = {name: _checked(given, f"of the domain {name!r}") for name, given in domains.items()}
    empty = [name for name, given in texts.items() if not given]
    if empty:
        raise InputError(f"no text in the domain {empty[0]!r}: give every domain a text, or leave it out")
    sizes = [len(given) for given in texts.values()]
    return Labelled(
        tuple(texts),
        [text for given in texts.values() for text in given],
        np.repeat(np.arange(len(texts)), sizes),
    )


def count_labels(labels: Indices) -> tuple[int, ...]:
    """How many texts there are of each domain."""
    return tuple(np.bincount(labels).tolist())


def needed(module: str, *, extra: str, purpose: str) -> Any:
    """A module, or the error that says which extra of the laboratory brings it; "" is the laboratory itself."""
    try:
        return import_module(module)
    except ImportError as error:
        package = {"sklearn": "scikit-learn"}.get(module.split(".")[0], module.split(".")[0])
        raise MissingExtraError(package, extra, purpose, "ir3de-lab") from error


def kept(arrays: Iterable[Any], *, besides: int = 0) -> tuple[int, int]:
    """How many numbers some arrays or tensors hold; and their bytes, with those of what is kept besides."""
    held = list(arrays)
    return sum(math.prod(array.shape) for array in held), sum(int(array.nbytes) for array in held) + besides


def spelt(words: Iterable[str]) -> int:
    """The bytes of the words, spelt out: a dictionary of them takes more."""
    return sum(len(word.encode(errors="replace")) for word in words)


def at_least(name: str, value: float, least: float) -> None:
    """Refuse a setting below the least it can be."""
    if not value >= least:
        raise InputError(f"{name} is {value}: it must be {least} or more")


def _checked(texts: Sequence[str], which: str) -> list[str]:
    if isinstance(texts, str):
        raise InputError(f"the texts {which} are one str: put it in a list")
    given = list(texts)
    for index, text in enumerate(given):
        if not isinstance(text, str):
            raise InputError(f"text {index} {which} is {type(text).__name__}, not str: {text!r:.60}")
    return given
