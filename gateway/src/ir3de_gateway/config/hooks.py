"""Hooks: what sees requests before an expert does, and answers before the client does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import field_validator, model_validator

from ir3de_gateway.config.experts import Capability
from ir3de_gateway.config.part import Name, Part, Seconds, Variable, resolve_path


class HookConfig(Part):
    """A hook: a Python callable, or an address that is called over HTTP."""

    name: Name | None = None
    """Its name in errors, logs and metrics; by default what it calls."""
    call: str | None = None
    """A callable: package.module:function, or a file beside this one: hooks.py:function"""
    url: str | None = None
    """Or an address that gets the request or the answer as JSON, with POST: http://127.0.0.1:9000/check"""
    token_env: Variable | None = None
    """The variable that holds the token for that address."""
    timeout: Seconds = 5.0
    """Seconds that it may take."""
    on_failure: Literal["refuse", "continue"] = "refuse"
    """What happens if it raises or takes too long: the client gets an error, or the request goes on without it."""
    endpoints: tuple[Capability, ...] = ()
    """The endpoints that it is for; all by default."""

    @field_validator("url")
    @classmethod
    def _is_web_address(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"https?://[^\s/?#@]+(/[!-~]*)?", value) is None:
            raise ValueError(f"must look like http://127.0.0.1:9000/check, found {value!r}")
        return value

    @field_validator("call")
    @classmethod
    def _is_callable(cls, value: str | None) -> str | None:
        if value is not None and re.fullmatch(r"[^:]+:[A-Za-z_][\w.]*", value) is None:
            raise ValueError(f"must look like package.module:function, found {value!r}")
        return value

    @model_validator(mode="after")
    def _has_one_target(self) -> Self:
        if (self.call is None) == (self.url is None):
            raise ValueError("a hook needs either call, a Python callable, or url, an address")
        return self

    def resolve(self, path: Path) -> Self:
        """The same with an absolute path, if the callable is in a file: relative ones start at the folder of `path`."""
        where, _, function = (self.call or "").rpartition(":")
        if not where.endswith(".py"):
            return self
        return self.model_copy(update={"call": f"{resolve_path(path, where)}:{function}"})

    @property
    def label(self) -> str:
        """Its name in logs and metrics; without the folder of a file."""
        where, colon, function = (self.call or "").rpartition(":")
        return self.name or f"{Path(where).name}{colon}{function}" or str(self.url)

    @property
    def public_label(self) -> str:
        """Its name for clients, who are not told its address."""
        return self.name or (self.label if self.url is None else urlsplit(self.url).path.rpartition("/")[2] or "http")


class AfterHookConfig(HookConfig):
    """A hook that sees answers."""

    streams: Literal["hold", "observe"] = "hold"
    """Whether a stream is held until it is complete, so that the hook can change or refuse it; or sent on as it comes,
    and the hook sees it afterwards."""


class Hooks(Part):
    """Hooks, which are called in their order."""

    before: tuple[HookConfig, ...] = ()
    """These see requests, before routing. They may change or refuse them."""
    after: tuple[AfterHookConfig, ...] = ()
    """These see answers. They may change or refuse them."""

    def resolve(self, path: Path) -> Hooks:
        """The same with absolute paths: relative ones start at the folder of `path`."""
        before, after = (one.resolve(path) for one in self.before), (one.resolve(path) for one in self.after)
        return Hooks(before=tuple(before), after=tuple(after))
