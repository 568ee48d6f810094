"""The gateway's configuration: one YAML file. It names the environment variables that hold secrets, never a secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from ir3de_gateway.config.cache import Cache
from ir3de_gateway.config.experts import ExpertConfig
from ir3de_gateway.config.hooks import Hooks
from ir3de_gateway.config.part import Part, suggest_name
from ir3de_gateway.config.routing import RouterConfig, Routing
from ir3de_gateway.config.serving import Logs, Server

VERSION: Literal[1] = 1


def list_name_problems(
    experts: Sequence[tuple[str, Sequence[str]]], default: str | None, shadow: str | None
) -> list[str]:
    """Names that occur twice, and names of experts that are not there: each with its field. Experts have fallbacks."""
    names = [name for name, _ in experts]
    mentioned = [("routing.default", default), ("routing.shadow", shadow)]
    mentioned += [(f"experts.{place}.fallbacks", name) for place, (_, own) in enumerate(experts) for name in own]
    twice = sorted({name for name in names if names.count(name) > 1})
    found = [f"experts: the names {', '.join(twice)} occur twice"] if twice else []
    for place, name in mentioned:
        if name is not None and name not in names:
            found.append(f"{place}: no expert {name!r}: {suggest_name(name, names)}there are {', '.join(names)}")
    return found


class Config(Part):
    """The configuration of `ir3de serve`."""

    version: Literal[1] = VERSION
    """Version of this format."""
    router: RouterConfig
    """The router that decides."""
    experts: tuple[ExpertConfig, ...] = Field(min_length=1)
    """The experts that answer requests."""
    server: Server = Server()
    """Where the gateway listens, and who may use it."""
    routing: Routing = Routing()
    """How an expert is chosen for a request."""
    logs: Logs = Logs()
    """The logs."""
    cache: Cache = Cache()
    """The response cache; off by default."""
    hooks: Hooks = Hooks()
    """What sees requests and answers on their way, for guardrails and redaction."""
    state: str | None = None
    """Folder for the changes made through /admin; by default `ir3de-state` next to this file."""

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        fallbacks = [(expert.name, expert.fallbacks) for expert in self.experts]
        if problems := list_name_problems(fallbacks, self.routing.default, self.routing.shadow):
            raise ValueError("\n".join(problems))
        return self

    @property
    def by_name(self) -> Mapping[str, ExpertConfig]:
        return {expert.name: expert for expert in self.experts}
