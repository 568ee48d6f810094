"""The configuration that `ir3de config init` writes: template.yaml with the router and the experts filled in."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import NamedTuple

from ir3de_gateway.config.experts import check_base_url

FIRST_PORT = 8001


class Endpoint(NamedTuple):
    """An expert as the command line names it: NAME=URL, NAME=URL,URL… for replicas, and #MODEL after either."""

    name: str
    base_url: str  # the first one
    model: str | None = None
    replicas: tuple[str, ...] = ()  # all of them, if there are several

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Raises ValueError."""
        name, equals, address = text.partition("=")
        if not (name.strip() and equals and address.startswith(("http://", "https://"))):
            raise ValueError(f"expected NAME=URL or NAME=URL#MODEL, found {text!r}: law=http://127.0.0.1:8001/v1")
        url, _, model = address.partition("#")
        first, *others = (one.strip() for one in url.split(","))
        if others:
            _check_addresses(name.strip(), (first, *others))
        return cls(name.strip(), first, model or None, (first, *others) if others else ())

    @property
    def setting(self) -> str:
        """Its address or addresses, as a line of the configuration."""
        if not self.replicas:
            return f"base_url: {_quote(self.base_url)}"
        return f"replicas: [{', '.join(json.dumps(address) for address in self.replicas)}]"


def _check_addresses(name: str, addresses: Sequence[str]) -> None:
    for place, address in enumerate(addresses, 1):
        if not address:
            raise ValueError(f"address {place} of {name!r} is empty: commas stand only between addresses")
        try:
            check_base_url(address)
        except ValueError as error:
            raise ValueError(f"address {place} of {name!r} {error}") from None


def build_template(router: str, experts: Sequence[Endpoint]) -> str:
    """A commented configuration for that router and those experts, of which there must be at least one."""
    first, *others = experts
    model = f"    # model: {_quote(first.name)}".ljust(56) + "# what the endpoint calls the model"
    lines = []
    for other in others:
        lines.append(f"  - name: {_quote(other.name)}\n    {other.setting}\n")
        lines.append(f"    model: {_quote(other.model)}\n" if other.model else "")
    return Template(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")).substitute(
        router=_quote(router),
        name=_quote(first.name),
        address=first.setting,
        model=f"    model: {_quote(first.model)}" if first.model else model,
        others="".join(lines),
    )


def suggest_endpoints(names: Sequence[str]) -> list[Endpoint]:
    """Endpoints to fill in: experts on this machine, one port after the other."""
    return [Endpoint(name, f"http://127.0.0.1:{FIRST_PORT + index}/v1") for index, name in enumerate(names)]


def _quote(text: str) -> str:
    """A text as YAML: bare where it cannot be taken for anything else."""
    bare = re.fullmatch(r"[A-Za-z_./][\w./:-]*", text) and text.lower() not in ("true", "false", "null")
    return text if bare and not text.endswith(":") else json.dumps(text)
