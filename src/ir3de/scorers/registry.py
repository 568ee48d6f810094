"""The interface of a scorer, and scorers and selectors by name: a saved router names them and holds no code.

A class of your own is a frozen dataclass whose fields are plain values. Either register it when its module is imported,

    @ir3de.scorers.register
    @dataclass(frozen=True)
    class MyScorer: ...

or let its package name it in an entry point, so that routers load wherever the package is installed:

    [project.entry-points."ir3de.scorers"]
    MyScorer = "my_package:MyScorer"
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from ir3de.errors import ArtifactError, InputError
from ir3de.scorers.arithmetic import Rows
from ir3de.statistics.domain import Statistics

if TYPE_CHECKING:  # importing it takes 30 ms, which a process that only routes does not pay
    from importlib.metadata import EntryPoint

Floats = npt.NDArray[np.float64]
Embeddings: TypeAlias = Rows  # E (V, h)
Class = TypeVar("Class", bound=type)

ORIGIN = "from"  # the key of the module and distribution of a class; no field of a dataclass can have this name


@runtime_checkable
class Scorer(Protocol):
    """Turns statistics into one score per token and expert."""

    def scores(self, domains: Sequence[Statistics], embeddings: Embeddings) -> Floats:
        """S (V, C), column c for `domains[c]`."""


@runtime_checkable
class PairScorer(Scorer, Protocol):
    """A scorer that may also score pairs of neighbouring tokens."""

    def pair_scores(self, domains: Sequence[Statistics]) -> Floats | None:
        """One row per bucket of pairs, (BUCKETS, C), or None."""


def check_strength(strength: float) -> None:
    """Raise an error unless the strength is a positive number."""
    if not isinstance(strength, (int, float)) or not 0 < strength < float("inf"):
        raise InputError(f"strength (λ) must be a positive number, found {strength!r}: try 0.01")


class Registry:
    """The classes of one kind, by name: built-in ones, registered ones, and those that entry points name.

    `laboratory` has the names that were built in before they moved to the distribution ir3de-lab.
    """

    def __init__(
        self,
        kind: str,
        module: str,
        built_in: Mapping[str, str],
        methods: Sequence[str],
        laboratory: Sequence[str] = (),
    ) -> None:
        self._kind = kind  # "scorer" or "selector"
        self._module = module  # the public module, which is also the group of the entry points
        self._built_in = built_in  # the module of each class
        self._methods = methods
        self._laboratory = laboratory
        self._registered: dict[str, type] = {}

    def names(self) -> tuple[str, ...]:
        """Every name that can be saved and loaded here: the built-in ones first."""
        return tuple(dict.fromkeys((*self._built_in, *self._registered, *(one.name for one in self._entry_points()))))

    def plugin_names(self) -> tuple[str, ...]:
        """The names that are not built in."""
        return self.names()[len(self._built_in) :]

    def create(self, name: str) -> Any:
        """An object of a class that is not built in, with its default parameters."""
        cls, _ = self._find(name)
        if cls is None:
            raise InputError(f"unknown {self._kind} '{name}': there are {', '.join(self.names())}")
        try:
            return cls()
        except TypeError as error:
            raise InputError(
                f"the {self._kind} '{name}' has parameters without a default: {error}. Fit with it in Python"
            ) from error

    def register(self, cls: Class) -> Class:
        """Let routers with objects of this class be saved and loaded; usable as a decorator."""
        self._check(cls)
        name = cls.__name__
        known = self._registered.get(name, cls)  # the same module and name: the module was reloaded
        is_same = (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__)
        if name in self._built_in or not is_same:
            raise InputError(f"there is another {self._kind} called '{name}': give the class another name")
        self._registered[name] = cls
        return cls

    def describe(self, strategy: Any) -> dict[str, Any]:
        """An object as plain values: the name of its class, its parameters, and the origin unless it is built in."""
        cls = type(strategy)
        name = cls.__name__
        if self._built_in.get(name) == cls.__module__:
            return {"name": name, **asdict(strategy)}
        known, distribution = self._find(name)
        if known is not cls:
            raise ArtifactError(
                f"cannot save {strategy!r}: its class is not registered. Decorate {cls.__qualname__} with "
                f"@{self._module}.register, or name it in an entry point of the group '{self._module}'"
            )
        if name in self._laboratory:  # as before it moved, so that earlier versions load the router too
            return {"name": name, **asdict(strategy)}
        origin = {"module": cls.__module__, "distribution": distribution}
        described = {"name": name, ORIGIN: origin, **asdict(strategy)}
        try:
            loaded = self.restore(json.loads(json.dumps(described)))
        except (TypeError, ValueError) as error:
            raise ArtifactError(f"cannot save {strategy!r}: its fields are not plain values ({error})") from error
        if loaded != strategy:
            raise ArtifactError(
                f"cannot save {strategy!r}: it would be loaded as {loaded!r}. Its fields must be numbers, texts, "
                "booleans, None, or lists of them"
            )
        return described

    def restore(self, described: Mapping[str, Any]) -> Any:
        """The object of a description."""
        parameters = dict(described)
        name, origin = parameters.pop("name"), parameters.pop(ORIGIN, None)
        if origin is None and name in self._built_in:
            return getattr(import_module(self._built_in[name]), name)(**parameters)
        cls, _ = self._find(name)
        if cls is None:
            raise ArtifactError(self._missing(name, origin))
        try:
            return cls(**parameters)
        except TypeError as error:
            raise ArtifactError(
                f"the {self._kind} '{name}' was saved with {parameters}, which this version of {cls.__module__} does "
                f"not take: {error}. Install the version that the router was saved with"
            ) from error

    def _find(self, name: str) -> tuple[type | None, str | None]:
        """The class of that name that is not built in, and the distribution whose entry point names it."""
        entry = next((one for one in self._entry_points() if one.name == name), None)
        distribution = None if entry is None or entry.dist is None else entry.dist.name
        if name in self._registered:
            return self._registered[name], distribution
        if name in self._laboratory and entry is None:
            return getattr(import_module(self._module), name), None  # or the error that names ir3de-lab
        if entry is None:
            return None, None
        try:
            return self._check(entry.load()), distribution
        except Exception as error:  # anything that another package's module raises on import
            raise ArtifactError(
                f"the {self._kind} '{name}' of the package {distribution} cannot be used: {error}. Its entry point is "
                f"{entry.value}"
            ) from error

    def _entry_points(self) -> Sequence[EntryPoint]:
        from importlib.metadata import entry_points

        return sorted(entry_points(group=self._module), key=lambda entry: (entry.name, entry.value))

    def _missing(self, name: str, origin: Mapping[str, Any] | None) -> str:
        what = f"the {self._kind} '{name}'"
        if origin is None:
            return f"unknown {self._kind} '{name}': this ir3de knows {', '.join(self.names())}. Upgrade ir3de"
        if distribution := origin.get("distribution"):
            return (
                f"{what} comes from the package {distribution}, and no entry point '{name}' in the group "
                f"'{self._module}' is installed here: pip install {distribution}"
            )
        return (
            f"{what} is not registered here. It is defined in the module {origin.get('module')}: import that before "
            f"the router is loaded, or name the class in an entry point of the group '{self._module}'"
        )

    def _check(self, cls: Class) -> Class:
        """Raise an error if objects of the class could not be saved and loaded."""
        wrong = ""
        if not isinstance(cls, type) or not is_dataclass(cls) or not cls.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            wrong = "it must be a frozen dataclass"
        elif any(field.name == "name" for field in fields(cls)):
            wrong = "its field 'name' needs another name"
        elif missing := [method for method in self._methods if not callable(getattr(cls, method, None))]:
            wrong = f"it needs the method {missing[0]}"
        if wrong:
            raise InputError(f"{cls!r} cannot be a {self._kind}: {wrong}")
        return cls


SCORERS = Registry(
    "scorer",
    "ir3de.scorers",
    {
        "TokenRidge": "ir3de.scorers.ridge",
        "PromptRidge": "ir3de.scorers.ridge",
        "Posterior": "ir3de.scorers.blend",
        "Blend": "ir3de.scorers.blend",
        "Logistic": "ir3de.scorers.logistic",
    },
    ("scores",),
    laboratory=("CrossEntropy", "KernelRidge"),
)

register = SCORERS.register
