"""Reads the configuration. All problems are reported at once, each with its line, its field and a suggestion."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from ir3de.errors import ArtifactError, InputError, describe_value
from ir3de_gateway.api_errors import list_faults
from ir3de_gateway.config import findings
from ir3de_gateway.config.document import Config, list_problems
from ir3de_gateway.config.experts import TlsFileError, read_variable
from ir3de_gateway.config.findings import ConfigError, Document, Finding, build_error, sort_findings

DEFAULT_FILE = "ir3de.yaml"
SCHEMA_ID = "urn:ir3de:config:1"
SOURCE_VARIABLE = "IR3DE_SERVE_SOURCE"  # gives worker processes their configuration
DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Source:
    """Where a configuration comes from: a file, and the overrides of the command line."""

    path: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def read(self, *, secrets: bool = True) -> Config:
        """The configuration as it is now."""
        if self.path is not None:
            return read(self.path, secrets=secrets, overrides=self.overrides)
        document = Document("the command line", {})
        return parse_config(document, Path.cwd() / DEFAULT_FILE, secrets=secrets, overrides=self.overrides)

    def to_environment(self) -> None:
        """Put it into the environment for the worker processes."""
        path = None if self.path is None else str(self.path.resolve())
        os.environ[SOURCE_VARIABLE] = json.dumps({"path": path, "overrides": self.overrides})

    @classmethod
    def from_environment(cls) -> Source:
        """The source that `to_environment` wrote; otherwise what `ir3de serve` would read."""
        given = os.environ.get(SOURCE_VARIABLE)
        if given is None:
            return cls(find_config_file())
        source = json.loads(given)
        return cls(None if source["path"] is None else Path(source["path"]), source["overrides"])


def find_config_file(given: str | Path | None = None) -> Path:
    """The file to read: the one given, else $IR3DE_CONFIG, else ir3de.yaml here."""
    return Path(given or os.environ.get("IR3DE_CONFIG") or DEFAULT_FILE).expanduser()


def read(path: Path, *, secrets: bool = True, overrides: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a file, with absolute paths; with `secrets`, all variables that it names must be set."""
    return parse_config(read_document(path), path, secrets=secrets, overrides=overrides)


def parse_config(
    document: Document, path: Path, *, secrets: bool = True, overrides: Mapping[str, Any] | None = None
) -> Config:
    """The configuration of a document with `overrides`; relative paths start at the folder of `path`."""
    if document.value is None:
        raise InputError(f"{document.name} is empty: `ir3de config init` writes an example")
    if not isinstance(document.value, dict):
        raise InputError(f"{document.name}: expected fields such as `router:`, found {describe_value(document.value)}")
    merged = merge_overrides(document.value, overrides or {})
    config, problems = None, list(findings.find_literal_secrets(document, document.value, ()))
    try:
        # strict JSON validation accepts lists for tuples and 1 for 1.0, but not "1" for 1
        config = Config.model_validate_json(json.dumps(merged), strict=True, context={"folder": path.parent})
    except ValidationError as error:
        problems += findings.convert_errors(document, list_faults(error), Config)
        # pydantic skips that check where a field is wrong
        problems += [findings.convert_problem(document, one) for one in list_problems(merged)]
    if secrets:
        problems += findings.find_unset_variables(document, merged)
        problems += _find_tls_problems(config, document) if config is not None else ()
    if problems or config is None:
        firsts = {one.where: one for one in reversed(problems)}  # the first problem of each field
        raise ConfigError(document.name, sort_findings(firsts.values()))
    return config


def _find_tls_problems(config: Config, document: Document) -> Iterator[Finding]:
    """Certificate and key files of experts that cannot be used."""
    for index, expert in enumerate(config.experts):
        try:
            if expert.tls is not None:
                expert.tls.build_context()
        except TlsFileError as error:
            yield build_error(document, ("experts", index, "tls", error.field), str(error))


def merge_overrides(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`below` with the fields of `above`; experts of the same name are replaced, the others stay."""
    result = dict(below)
    for key, value in above.items():
        before = result.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            result[key] = merge_overrides(before, value)
        elif key == "experts" and isinstance(before, list):
            names = [expert["name"] for expert in value]  # a list: a name in the file may be unhashable
            kept = [one for one in before if not (isinstance(one, Mapping) and one.get("name") in names)]
            result[key] = [*kept, *value]
        else:
            result[key] = value
    return result


def list_variables(config: Config) -> dict[str, bool]:
    """Every environment variable that may hold a secret, and whether it is set."""
    named = [name for _, name in findings.list_variables(config.model_dump(mode="json"))]
    return {name: read_variable(name) is not None for name in (*list_client_variables(config), *named)}


def list_client_variables(config: Config) -> tuple[str, ...]:
    """The variables that may hold clients' keys."""
    return config.server.api_keys_env or ("IR3DE_API_KEY",)


def format_schema() -> str:
    """The JSON Schema of a configuration file, as docs/ir3de.schema.json has it."""
    schema = {"$schema": DIALECT, "$id": SCHEMA_ID, **Config.model_json_schema()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


# YAML --------------------------------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """PyYAML reads YAML 1.1, where `no` is false and 010 is eight. Editors and schemas use 1.2."""

    yaml_implicit_resolvers: dict[str, list[Any]] = {}  # noqa: RUF012 - PyYAML's own attribute

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        node = super().compose_node(parent, index)
        if node is not None and node.end_mark is None:  # it is still being read
            raise yaml.MarkedYAMLError(problem="an alias that contains itself", problem_mark=node.start_mark)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        lines: dict[str, int] = {}  # of the keys
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                line = key.start_mark.line + 1
                if first := lines.get(key.value):
                    found = f"{self.name}, line {line}: {key.value!r} occurs twice"
                    raise InputError(f"{found}, first in line {first}: keep one of them")
                lines[key.value] = line
        return node


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


def read_document(path: Path, what: str = "configuration", advice: str = "") -> Document:
    """Read a YAML file. Raises ArtifactError if it cannot be read, InputError if it is not YAML."""
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
    return parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    """Parse YAML 1.2: `no` is a string, `1e3` a number, and duplicate keys are errors. `name` is for error messages."""
    if found := yaml.reader.Reader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise InputError(f"{name}, line {line}: the character U+{ord(found.group()):04X} is not allowed in YAML")
    loader = _Loader(text)
    loader.name = name
    try:
        root = loader.get_single_node()
        value = None if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        raise InputError(f"{name}{_describe_yaml_error(error)}") from None
    except InputError:  # a duplicate key
        raise
    except (ValueError, TypeError, OverflowError) as error:  # such as a number of ten thousand digits
        raise InputError(f"{name}: this is not YAML: {error}") from None
    except RecursionError:
        raise InputError(f"{name}: the nesting is too deep for a configuration") from None
    finally:
        loader.dispose()
    return Document(name, value, root)


def _describe_yaml_error(error: yaml.MarkedYAMLError) -> str:
    """PyYAML's message with its line, but without the excerpt of the file, which may hold a secret."""
    mark = error.problem_mark or error.context_mark
    line = "" if mark is None else f", line {mark.line + 1}"
    message = ", ".join(part for part in (error.context, error.problem) if part) or "it cannot be read"
    return f"{line}: this is not YAML: {message}" + " (indent with spaces, not with tabs)" * ("\\t" in message)
