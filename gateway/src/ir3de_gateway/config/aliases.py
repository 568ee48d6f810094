"""Aliases: other names for `auto` or an expert, for clients whose model cannot be changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ir3de_gateway.config.experts import RESERVED
from ir3de_gateway.config.findings import suggest_name


def list_alias_problems(aliases: Mapping[str, object], experts: Collection[str]) -> Iterator[str]:
    """What is wrong with aliases: the name of an expert, an unknown target, a circle."""
    targets = [*RESERVED[:1], *experts]
    for name, target in aliases.items():
        if not name or not name.isprintable() or len(name) > 200:
            yield f"aliases: an alias needs a printable name of 1 to 200 characters, found {name[:200]!r}"
        elif name in RESERVED:
            yield f"aliases: {name!r} is the model that requests routing: choose another name"
        elif name in experts:
            yield f"aliases: {name!r} is the name of an expert: choose another name for the alias"
        elif isinstance(target, str) and target not in (*RESERVED, *experts, *aliases):
            hint = suggest_name(target, targets)
            yield f"aliases: {name!r} stands for {target!r}, which is unknown: {hint}there are {', '.join(targets)}"
        elif find_target(name, aliases) is None:
            yield f"aliases: {name!r} leads back to itself: let it stand for auto or an expert"


def find_target(name: str, aliases: Mapping[str, object]) -> str | None:
    """What an alias stands for in the end; None if that is itself.

    >>> find_target("a", {"a": "b", "b": "law"}), find_target("a", {"a": "b", "b": "a"})
    ('law', None)
    """
    seen = [name]
    while (target := aliases.get(seen[-1])) is not None:
        if target in seen:
            return None
        seen.append(str(target))
    return seen[-1]
