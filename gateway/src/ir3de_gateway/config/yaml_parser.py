"""A YAML 1.2 parser with the line of every field: `no` is a string, `1e3` a number, and duplicate keys are errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ir3de.errors import ArtifactError, InputError

FieldPath = tuple[str | int, ...]  # ("experts", 0, "base_url")


@dataclass(frozen=True)
class Document:
    """The content of a file, and the lines of its fields."""

    name: str  # of the file, for error messages
    value: Any
    root: yaml.Node | None = None

    def line(self, path: FieldPath) -> int | None:
        """The line of a field; if it is missing, of the innermost field around it."""
        if self.root is None:
            return None
        node, found = self.root, self.root.start_mark.line
        for step in path:
            inner = _find_child(node, step)
            if inner is None:
                break
            found, node = inner
        return found + 1

    def has(self, path: FieldPath) -> bool:
        """Whether the file has a field of its own there, or one around it."""
        return self.root is not None and _find_child(self.root, path[0]) is not None


class _Loader(yaml.SafeLoader):
    """PyYAML reads YAML 1.1, where `no` is false and 010 is eight. Editors and schemas use 1.2."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - PyYAML's own attribute


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), [*_first])
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile("^$"), [""])
_Loader.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))
_Loader.add_constructor("tag:yaml.org,2002:float", lambda _, node: float(node.value))


def read(path: Path, what: str = "configuration", advice: str = "") -> Document:
    """Read a file. Raises ArtifactError if it cannot be read, InputError if it is not YAML."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        advice = advice or f"write one with `ir3de config init {path}`"
        raise ArtifactError(f"no {what} at {path}: {advice}") from None
    except OSError as error:
        raise ArtifactError(f"cannot read the {what} {path}: {error.strerror or error}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not UTF-8, found the byte 0x{content[error.start]:02x}") from None
    return parse(text, str(path))


def parse(text: str, name: str) -> Document:
    """Parse a text; `name` is for error messages."""
    if found := yaml.reader.Reader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise InputError(f"{name}, line {line}: the character U+{ord(found.group()):04X} is not allowed in YAML")
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        value = None if root is None else _construct(loader, root, name)
    except yaml.MarkedYAMLError as error:
        raise InputError(f"{name}{_describe_error(error)}") from None
    except RecursionError:
        raise InputError(f"{name}: the nesting is too deep for a configuration") from None
    finally:
        loader.dispose()
    return Document(name, value, root)


def _construct(loader: _Loader, root: yaml.Node, name: str) -> Any:
    for line, key, first in _find_duplicates(root, [], set()):
        raise InputError(f"{name}, line {line + 1}: {key!r} occurs twice, first in line {first + 1}: keep one of them")
    try:
        return loader.construct_document(root)
    except (ValueError, TypeError, OverflowError) as error:  # such as a number of ten thousand digits
        raise InputError(f"{name}: this is not YAML: {error}") from None


def _find_duplicates(node: yaml.Node, above: list[yaml.Node], done: set[int]) -> Iterator[tuple[int, str, int]]:
    """Keys that occur twice in one mapping. An alias is visited once, and must not contain itself."""
    if any(node is one for one in above):
        raise yaml.MarkedYAMLError(problem="an alias that contains itself", problem_mark=node.start_mark)
    if id(node) in done:
        return
    done.add(id(node))
    above.append(node)
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, inner in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    yield key.start_mark.line, key.value, seen[key.value]
                seen[key.value] = key.start_mark.line
            yield from _find_duplicates(inner, above, done)
    elif isinstance(node, yaml.SequenceNode):
        for inner in node.value:
            yield from _find_duplicates(inner, above, done)
    above.pop()


def _find_child(node: yaml.Node, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        for key, inner in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value == step:
                return key.start_mark.line, inner
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        inner = node.value[step]
        return inner.start_mark.line, inner
    return None


def _describe_error(error: yaml.MarkedYAMLError) -> str:
    """PyYAML's message with its line, but without the excerpt of the file, which may hold a secret."""
    mark = error.problem_mark or error.context_mark
    line = "" if mark is None else f", line {mark.line + 1}"
    message = ", ".join(part for part in (error.context, error.problem) if part) or "it cannot be read"
    return f"{line}: this is not YAML: {message}" + " (indent with spaces, not with tabs)" * ("\\t" in message)
