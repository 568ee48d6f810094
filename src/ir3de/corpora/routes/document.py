"""A JSON or YAML file of another router as plain values. Nothing in it is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ir3de.errors import ArtifactError, InputError, MissingExtraError
from ir3de.files.atomic import find_kind

MAX_FILE_BYTES = 32_000_000
MAX_YAML_CHARS = 5_000_000  # PyYAML reads these in about 20 seconds
MAX_MERGED_KEYS = 100_000  # of one object: a few lines of YAML can expand to billions of them
JSON_STARTS = ("{", "[")


def read_document(path: Path) -> Any:
    """The values in a file. Raises an error for one that is empty, too large, not UTF-8, or neither JSON nor YAML."""
    text = _read_text(path)
    if path.suffix.lower() == ".json":
        return _parse_json(text, path)
    if text.lstrip().startswith(JSON_STARTS):
        try:
            return _parse_json(text, path)
        except InputError:
            if path.suffix.lower() not in (".yaml", ".yml"):
                raise
    return _parse_yaml(text, path)


def parse_text(text: str, where: str) -> Any:
    """The values in a JSON text that stands inside another file."""
    return _parse_json(text, where)


def _read_text(path: Path) -> str:
    if find_kind(path) == "folder":
        raise InputError(f"{path} is a folder: name the file that holds the routes")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ArtifactError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # a null byte in the name
        raise ArtifactError(f"cannot read {str(path)!r}: {error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise InputError(
            f"{path} is larger than {MAX_FILE_BYTES / 1e6:.0f} MB, which is more than a file of routes: if it holds "
            "labelled texts, give it to `ir3de fit` with --label"
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{path}, line {line}: not UTF-8, found the byte 0x{content[error.start]:02x}: save the file as UTF-8"
        ) from None
    if not text.strip():
        raise InputError(f"{path} is empty: name the file that holds the routes")
    return text


def _parse_json(text: str, where: str | Path) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{where}, line {error.lineno}: this is not JSON: {error.msg}") from None
    except ValueError as error:  # a number with thousands of digits
        raise InputError(f"{where}: this is not JSON: {error}") from None
    except RecursionError:
        raise InputError(f"{where}: the nesting is too deep for a file of routes") from None


def _parse_yaml(text: str, path: Path) -> Any:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise MissingExtraError("pyyaml", "yaml", f"reading {path}, which is not JSON,") from error

    if len(text) > MAX_YAML_CHARS:
        raise InputError(
            f"{path} has {len(text):,} characters of YAML, which is slow to read; {MAX_YAML_CHARS:,} is the most: save "
            "it as JSON"
        )

    class Loader(yaml.SafeLoader):  # the faster CSafeLoader ends the process where the nesting is deep
        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            super().flatten_mapping(node)
            if len(node.value) > MAX_MERGED_KEYS:
                raise yaml.constructor.ConstructorError(None, None, "`<<` merges too many keys", node.start_mark)

    try:
        return yaml.load(text, Loader=Loader)  # noqa: S506 - it is a safe loader
    except yaml.constructor.ConstructorError as error:
        raise InputError(f"{path}{_line(error)}: {_explain(error)}") from None
    except yaml.MarkedYAMLError as error:
        message = ", ".join(part for part in (error.context, error.problem) if part)
        raise InputError(f"{path}{_line(error)}: this is not YAML: {message}") from None
    except (yaml.YAMLError, ValueError, TypeError, OverflowError) as error:  # such as the 40th of May
        raise InputError(f"{path}: this is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InputError(f"{path}: the nesting is too deep for a file of routes") from None


def _line(error: Any) -> str:
    mark = error.problem_mark or error.context_mark
    return "" if mark is None else f", line {mark.line + 1}"


def _explain(error: Any) -> str:
    """Why a value cannot be made; tags of Python objects are named as what they are."""
    _, found, tag = str(error.problem or "").partition("could not determine a constructor for the tag ")
    if found:
        return f"the tag {tag} stands for an object of a program, which is not made: write the value itself"
    return f"this is not YAML: {error.problem or 'it cannot be read'}"
