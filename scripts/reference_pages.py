"""The reference pages of the configuration and of HTTP, as Markdown, from the schemas that the gateway itself has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

_CONFIGURATION = """# Configuration

Every field of `ir3de.yaml`, with its default. `ir3de config init` writes a file to begin with, `ir3de config validate`
checks one, and [ir3de.schema.json](ir3de.schema.json) tells an editor the same. [The gateway](gateway.md#configuration)
shows an example. Times are seconds.

This page is written by `scripts/generate_config_schema.py`.
"""
_HTTP = """# HTTP

Every path of the gateway. A running gateway tells the same at `/openapi.json`. [The gateway](gateway.md) says what the
fields do, and [clients](clients.md) shows the official ones. Errors have the shape of the API that was asked, and
`x-request-id` is on every answer.

This page is written by `scripts/generate_openapi.py`.
"""
_PARTS = {
    "Asking": "/v1/",
    "Operating": "/admin/",
    "Health, metrics and the page": "/",
}
_KEYWORDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}  # of JSON Schema


def describe_configuration(schema: Schema) -> str:
    """The page of the configuration: one section for each object, named by the way to it."""
    lines = [_CONFIGURATION]
    waiting: list[tuple[str, Schema]] = [("", schema)]
    titles: dict[str, str] = {}
    sections: list[tuple[str, Schema]] = []
    while waiting:
        path, part = waiting.pop(0)
        sections.append((path, part))
        inner = []
        for name, field in part.get("properties", {}).items():
            for reference, many in _find_references(field):
                if reference not in titles:
                    titles[reference] = f"{path}{'.' if path else ''}{name}{'[]' if many else ''}"
                    inner.append((titles[reference], schema["$defs"][reference]))
        waiting = inner + waiting
    links = {name: f"[`{title}`](#{_make_anchor(title)})" for name, title in titles.items()}
    for path, part in sections:
        lines.append(f"## {f'`{path}`' if path else 'The file'}\n")
        lines += [f"{_flatten(part['description'])}\n"] if part.get("description") else []
        lines += [*_tabulate(part, links), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def describe_http(document: Schema) -> str:
    """The page of HTTP: the paths, the headers, the bodies and the errors."""
    lines = [_HTTP]
    schemas = document["components"]["schemas"]
    links = {name: f"[{name}](#{_make_anchor(name)})" for name in schemas}
    left = dict(document["paths"])
    for title, prefix in _PARTS.items():
        lines += [f"## {title}\n", "| path | what it does | body | answer |", "|---|---|---|---|"]
        for path in [
            path for path in left if path.startswith(prefix) or (prefix == "/v1/" and path.startswith("/v2/"))
        ]:
            lines += [_describe_operation(path, method, about, links) for method, about in left.pop(path).items()]
        lines.append("")
    lines += ["## Request headers\n", *_list_headers(document), ""]
    lines += ["## Errors\n", "| status | meaning |", "|---:|---|"]
    for name, answer in sorted(document["components"]["responses"].items()):
        lines.append(f"| {name.removeprefix('Error')} | {_flatten(answer['description'])} |")
    lines += ["", "## Bodies\n"]
    for name, schema in schemas.items():
        lines += [f"### {name}\n"]
        lines += [f"{_flatten(schema['description'])}\n"] if schema.get("description") else []
        lines += [*_tabulate(schema, links), ""] if schema.get("properties") else []
    return "\n".join(lines).rstrip("\n") + "\n"


def _describe_operation(path: str, method: str, about: Schema, links: dict[str, str]) -> str:
    body = _name_content(about.get("requestBody", {}), links)
    answer = _name_content(about["responses"]["200"], links)
    token = " (admin token)" if about.get("security") == [{"admin": []}] else ""
    return f"| `{method.upper()} {path}` | {_flatten(about['summary'])}{token} | {body} | {answer} |"


def _name_content(part: Schema, links: dict[str, str]) -> str:
    for content in part.get("content", {}).values():
        for reference, _ in _find_references(content.get("schema", {})):
            return links[reference]
    return "–" if not part.get("content") else "text or bytes"


def _list_headers(document: Schema) -> Iterator[str]:
    yield "| header | meaning |"
    yield "|---|---|"
    seen: dict[str, str] = {}
    for operations in document["paths"].values():
        for about in operations.values():
            for parameter in about.get("parameters", ()):
                if parameter["in"] == "header":
                    seen.setdefault(parameter["name"], parameter["description"])
    yield from (f"| `{name}` | {_flatten(meaning)} |" for name, meaning in seen.items())


def _tabulate(part: Schema, links: dict[str, str]) -> Iterator[str]:
    yield "| field | kind | default | meaning |"
    yield "|---|---|---|---|"
    required = set(part.get("required", ()))
    for name, field in part.get("properties", {}).items():
        described = _flatten(field.get("description", ""))
        yield f"| `{name}` | {_name_kind(field, links)} | {_show_default(field, name in required)} | {described} |"


def _name_kind(field: Schema, links: dict[str, str]) -> str:
    if "$ref" in field:
        return links[field["$ref"].rpartition("/")[2]]
    if alternatives := field.get("anyOf") or field.get("oneOf"):
        kinds = dict.fromkeys(_name_kind(one, links) for one in alternatives if one.get("type") != "null")
        return " or ".join(kinds)
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "const" in field:
        return f"`{field['const']}`"
    if field.get("type") == "array":
        return f"list of {_name_kind(field.get('items', {}), links)}"
    bounds = [f"{sign} {field[keyword]:,}" for keyword, sign in _KEYWORDS.items() if keyword in field]
    return " ".join([str(field.get("type", "anything")), ", ".join(bounds)]).strip()


def _show_default(field: Schema, required: bool) -> str:
    if required or "default" not in field:
        return "" if not required else "must be given"
    default = field["default"]
    if default in (None, [], {}, ""):
        return "–"
    if isinstance(default, dict):
        return "see there"
    return f"`{json.dumps(default, ensure_ascii=False)}`" if not isinstance(default, str) else f"`{default}`"


def _find_references(field: Schema, many: bool = False) -> Iterator[tuple[str, bool]]:
    """The objects that a field holds, and whether it is a list of them."""
    if "$ref" in field:
        yield field["$ref"].rpartition("/")[2], many
    for one in [*field.get("anyOf", ()), *field.get("oneOf", ())]:
        yield from _find_references(one, many)
    if "items" in field:
        yield from _find_references(field["items"], True)


def _make_anchor(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _flatten(text: str) -> str:
    """The text on one line, fit for a cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
