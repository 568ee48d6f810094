"""What `ir3de config validate` says of a keys file: its problems, each with its line, and limits that mean nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import time

from ir3de.errors import IR3DEError
from ir3de_gateway.config.findings import ConfigError, Finding, join_path
from ir3de_gateway.config.models import Config
from ir3de_gateway.config.yaml_parser import FieldPath
from ir3de_gateway.keys.definitions import KeyEntry, parse_keys, parse_moment, read_keys_document
from ir3de_gateway.keys.store import find_unknown_experts

_BUDGETS = ("budget_per_day", "budget_per_month")


def check_keys_file(config: Config) -> list[Finding]:
    """Problems of the keys file, with its lines; experts that only it names; expired keys; budgets without a use."""
    if config.server.keys_file is None:
        return []
    path = Path(config.server.keys_file)
    try:
        document = read_keys_document(path)
        entries = parse_keys(document).keys
    except ConfigError as error:
        return [replace(finding, where=f"{path.name}: {finding.where}") for finding in error.findings]
    except IR3DEError as error:
        return [Finding("error", "server.keys_file", str(error))]
    warnings: list[tuple[FieldPath, str]] = [
        (("keys", place, "experts"), f"there is no expert {name!r}: there are {', '.join(config.by_name)}")
        for place, name in find_unknown_experts(entries, config.by_name)
    ]
    for place, entry in enumerate(entries):
        if entry.expires is not None and not entry.disabled and parse_moment(entry.expires) <= time():
            text = f"the key {entry.name!r} has expired and is refused: remove it, or give it a later day"
            warnings.append((("keys", place, "expires"), text))
        warnings += [(("keys", place, "limits", field), text) for field, text in _check_budgets(entry, config)]
    return [
        Finding("warning", f"{path.name}: {join_path(where)}", text, document.line(where)) for where, text in warnings
    ]


def _check_budgets(entry: KeyEntry, config: Config) -> Iterator[tuple[str, str]]:
    """Budgets that refuse everything, or that nothing uses up."""
    asked = [expert for name, expert in config.by_name.items() if entry.experts is None or name in entry.experts]
    is_free = not any(expert.price.input_per_1m or expert.price.output_per_1m for expert in asked)
    for field in _BUDGETS:
        budget = getattr(entry.limits, field)
        if budget == 0:
            yield field, f"a budget of 0 refuses every request of {entry.name!r}: leave it out for no limit"
        elif budget is not None and asked and is_free:
            whose = "no expert has a price" if entry.experts is None else "its experts have no price"
            yield field, f"is never reached, because {whose}: set `price` for the experts in the configuration"
