"""The gateway's configuration: one YAML file. It names the environment variables that hold secrets, never a secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from ir3de.gateway.config.cache import Cache
from ir3de.gateway.config.experts import ExpertConfig
from ir3de.gateway.config.hooks import Hooks
from ir3de.gateway.config.part import Part
from ir3de.gateway.config.routing import RouterConfig, Routing
from ir3de.gateway.config.serving import Logs, Server

VERSION: Literal[1] = 1


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
        names = [expert.name for expert in self.experts]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"experts: the names {', '.join(twice)} occur twice")
        mentioned = [("routing.default", self.routing.default), ("routing.shadow", self.routing.shadow)]
        mentioned += [(f"experts.{i}.fallbacks", name) for i, e in enumerate(self.experts) for name in e.fallbacks]
        for place, name in mentioned:
            if name is not None and name not in names:
                raise ValueError(f"{place}: no expert {name!r}: there are {', '.join(names)}")
        return self

    @property
    def by_name(self) -> Mapping[str, ExpertConfig]:
        return {expert.name: expert for expert in self.experts}
