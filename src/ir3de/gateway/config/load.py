"""Reading the configuration: every problem at once, each with its line, its field and what to do about it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ir3de.errors import InputError
from ir3de.gateway.config import findings, yaml_parser
from ir3de.gateway.config.findings import ConfigError, Finding, format_value, join_path, sort_findings
from ir3de.gateway.config.models import Config, beside, secret
from ir3de.gateway.config.yaml_parser import Document, FieldPath

__all__ = ["ConfigError", "Finding", "Source", "build_schema", "locate", "read"]

DEFAULT_FILE = "ir3de.yaml"
SCHEMA_ID = "urn:ir3de:config:1"
SOURCE_VARIABLE = "IR3DE_SERVE_SOURCE"  # the variable by which workers learn where their configuration is
DIALECT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class Source:
    """Where a configuration comes from: a file, and what the command line says beyond it. Workers are told so."""

    path: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def read(self, *, secrets: bool = True) -> Config:
        """The configuration as it is now."""
        if self.path is not None:
            return read(self.path, secrets=secrets, overrides=self.overrides)
        said = Document("the command line", {})
        return parse_config(said, Path.cwd() / DEFAULT_FILE, secrets=secrets, overrides=self.overrides)

    def to_environment(self) -> None:
        """Leave it in the environment for the processes that serve."""
        path = None if self.path is None else str(self.path.resolve())
        os.environ[SOURCE_VARIABLE] = json.dumps({"path": path, "overrides": self.overrides})

    @classmethod
    def from_environment(cls) -> Source:
        """What this process was started with; without that, what `ir3de serve` would read."""
        given = os.environ.get(SOURCE_VARIABLE)
        if given is None:
            return cls(locate())
        said = json.loads(given)
        return cls(None if said["path"] is None else Path(said["path"]), said["overrides"])


def locate(given: str | Path | None = None) -> Path:
    """The file to read: the one given, else $IR3DE_CONFIG, else ir3de.yaml here."""
    return Path(given or os.environ.get("IR3DE_CONFIG") or DEFAULT_FILE).expanduser()


def read(path: Path, *, secrets: bool = True, overrides: Mapping[str, Any] | None = None) -> Config:
    """The configuration of a file, its paths made absolute; `secrets` demands that the variables it names are set."""
    return parse_config(yaml_parser.read(path), path, secrets=secrets, overrides=overrides)


def parse_config(
    document: Document, path: Path, *, secrets: bool = True, overrides: Mapping[str, Any] | None = None
) -> Config:
    """The configuration a document holds, with `overrides` put over it; its paths are meant from where `path` is."""
    if document.value is None:
        raise InputError(f"{document.name} is empty: `ir3de config init` shows what belongs into it")
    if not isinstance(document.value, dict):
        raise InputError(f"{document.name}: expected fields such as `router:`, found {format_value(document.value)}")
    name, literal = document.name, list(findings.find_literal_secrets(document, document.value, ()))
    try:
        # the strict reading of JSON takes lists for tuples and 1 for 1.0, but "1" for nothing but a text
        config = Config.model_validate_json(json.dumps(merge_overrides(document.value, overrides or {})), strict=True)
    except ValidationError as error:
        told = {finding.where for finding in literal}
        found = findings.convert_errors(document, error.errors(include_url=False))
        raise ConfigError(name, sort_findings([*literal, *(one for one in found if one.where not in told)])) from None
    if literal:  # among free fields, such as an expert's defaults
        raise ConfigError(name, sort_findings(literal))
    if secrets and (unset := find_unset_variables(config, document)):
        raise ConfigError(name, unset)
    return resolve_paths(config, path)


def merge_overrides(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `above` over those of `below`; experts of the same name are replaced, others stay."""
    result = dict(below)
    for key, value in above.items():
        before = result.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            result[key] = merge_overrides(before, value)
        elif key == "experts" and isinstance(before, list):
            names = {expert["name"] for expert in value}
            kept = [one for one in before if not (isinstance(one, Mapping) and one.get("name") in names)]
            result[key] = [*kept, *value]
        else:
            result[key] = value
    return result


def resolve_paths(config: Config, path: Path) -> Config:
    """The configuration with its paths absolute: relative ones are meant from the folder of `path`."""

    def absolute(given: str | None) -> str | None:
        return beside(path, given) if given and given != "-" else given

    logs = config.logs
    return config.model_copy(
        update={
            "router": config.router.model_copy(update={"path": absolute(config.router.path)}),
            "logs": logs.model_copy(update={"access": absolute(logs.access), "decisions": absolute(logs.decisions)}),
            "state": absolute(config.state),
        }
    )


def variables(config: Config) -> dict[str, bool]:
    """Every variable that may hold a secret, and whether it is set."""
    names = [*list_client_variables(config), config.server.admin_token_env]
    names += [expert.api_key_env for expert in config.experts if expert.api_key_env]
    return {name: secret(name) is not None for name in names}


def list_client_variables(config: Config) -> tuple[str, ...]:
    """The variables that may hold clients' keys."""
    return config.server.api_keys_env or ("IR3DE_API_KEY",)


def find_unset_variables(config: Config, document: Document | None = None) -> list[Finding]:
    """Variables that the configuration names and that are not set: without them it would not do what it says."""
    named: list[tuple[FieldPath, str]] = [
        (("server", "api_keys_env", index), name) for index, name in enumerate(config.server.api_keys_env)
    ]
    named += [
        (("experts", index, "api_key_env"), expert.api_key_env)
        for index, expert in enumerate(config.experts)
        if expert.api_key_env
    ]
    return [
        Finding(
            "error", join_path(path), findings.describe_unset(name), None if document is None else document.line(path)
        )
        for path, name in named
        if secret(name) is None
    ]


def build_schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file."""
    return {"$schema": DIALECT, "$id": SCHEMA_ID, **Config.model_json_schema()}


def format_schema() -> str:
    """The same, as docs/ir3de.schema.json has it."""
    return json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"
