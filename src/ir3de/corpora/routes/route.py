"""A route of another router, and what of its file cannot be carried over."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ir3de.embedding.normalisation import replace_lone_surrogates
from ir3de.errors import InputError, describe_value, name_some


@dataclass
class Route:
    """A future expert: its example prompts, its purpose in words, and the models that answer, the best one first."""

    name: str
    utterances: list[str] = field(default_factory=list)
    description: str | None = None
    models: list[Model] = field(default_factory=list)


@dataclass(frozen=True)
class Model:
    """What an endpoint calls a model, and the endpoint's address where the file has it."""

    name: str
    base_url: str | None = None


class LeftOut:
    """What a file holds that IR3DE has no place for: for each kind of thing the reason, and the routes that have it."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str], dict[str, None]] = {}

    def add(self, what: str, reason: str, route: str | None = None) -> None:
        found = self._routes.setdefault((what, reason), {})
        if route is not None:
            found[route] = None

    def add_fields(self, given: Mapping[str, Any], carried: Collection[str], reason: str, route: str) -> None:
        """Add the fields of a route that have a value and are not among those carried over."""
        for key, value in given.items():
            if key not in carried and value not in (None, False, {}, [], ""):
                self.add(f"the field {key!r}", reason, route)

    def sentences(self) -> tuple[str, ...]:
        """One line for each kind of thing."""
        return tuple(
            f"{what}{f' of {name_some(routes)}' if routes else ''}: {reason}"
            for (what, reason), routes in self._routes.items()
        )


def read_name(value: object, where: str) -> str:
    """The name of a route. Raises an error for what cannot be an expert's name."""
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: a name must be text, found {describe_value(value)}: write it in quotes")
    if not value.strip().isprintable():
        raise InputError(f"{where}: the name {value!r:.60} has control characters: rename it")
    return value.strip()


def read_texts(value: object, where: str, what: str) -> list[str]:
    """The texts of a route, each once, without the empty ones."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError(f"{where}: {what} must be a list of texts, found {describe_value(value)}")
    texts: dict[str, str] = {}
    for place, text in enumerate(value, 1):
        if not isinstance(text, str):
            found = describe_value(text)
            raise InputError(f"{where}: text {place} of {what} is not text, found {found}: write it in quotes")
        if text.strip():
            texts.setdefault(text.strip(), replace_lone_surrogates(text))
    return list(texts.values())


def read_words(value: object, where: str, what: str) -> str | None:
    """A description on one line; None if there is none."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise InputError(f"{where}: {what} must be text, found {describe_value(value)}: write it in quotes")
    return replace_lone_surrogates(" ".join(value.split())) or None


def read_mappings(value: object, where: str) -> list[Mapping[str, Any]]:
    """A list of objects with fields; nothing is an empty list."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise InputError(f"{where} must be a list, found {describe_value(value)}")
    for place, one in enumerate(value, 1):
        if not isinstance(one, Mapping):
            raise InputError(f"entry {place} of {where} must have fields such as name, found {describe_value(one)}")
    return value


def as_mapping(value: object) -> Mapping[str, Any]:
    """The fields of an object; none where there is no object."""
    return value if isinstance(value, Mapping) else {}


def join(routes: Iterable[Route]) -> dict[str, Route]:
    """The routes by name. The parts of one name are put together; a text or a model counts once."""
    joined: dict[str, Route] = {}
    for route in routes:
        whole = joined.setdefault(route.name, Route(route.name))
        known = {text.strip() for text in whole.utterances}
        whole.utterances += [text for text in route.utterances if text.strip() not in known]
        whole.models += [model for model in route.models if model not in whole.models]
        whole.description = whole.description or route.description
    return joined
