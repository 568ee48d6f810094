"""The keys file: named keys, what each may do, and how much. It holds hashes of keys, or names of variables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time
from pathlib import Path
from time import time as now
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator

from ir3de.errors import InputError, IR3DEError, describe_value
from ir3de_gateway.api_errors import list_faults
from ir3de_gateway.config import findings
from ir3de_gateway.config.document import Config
from ir3de_gateway.config.experts import Name, Part, Variable
from ir3de_gateway.config.findings import ConfigError, Document, FieldPath, Finding, join_path, sort_findings
from ir3de_gateway.config.load import read_document

Scope = Literal["inference", "route", "models", "metrics", "admin"]
SCOPES: tuple[str, ...] = get_args(Scope)
MAX_KEYS = 10_000
_ADVICE = "`ir3de keys new NAME` prints an entry for it, to stand below `keys:`"

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class KeyLimits(Part):
    """How much a key may use. What is left out has no limit."""

    requests_per_minute: int | None = Field(None, ge=0, le=10**9)
    """Requests within 60 seconds."""
    tokens_per_minute: int | None = Field(None, ge=0, le=10**12)
    """Tokens of prompts and answers within 60 seconds."""
    concurrent: int | None = Field(None, ge=0, le=10**6)
    """Requests at once."""
    budget_per_day: Amount | None = None
    """Cost of a day (UTC), in the currency of the experts' prices."""
    budget_per_month: Amount | None = None
    """Cost of a calendar month (UTC), in the currency of the experts' prices."""


def _check_hash(value: str | None) -> str | None:
    if value is not None and re.fullmatch(r"sha256:[0-9a-fA-F]{64}", value) is None:
        shown = value[: 10 if value.startswith("sha256:") else 3]  # it may be a key, so it is not repeated
        found = f"found {shown!r}… with {len(value)} characters; `ir3de keys new NAME` makes one"
        raise ValueError(f"must be sha256: and 64 hexadecimal digits, {found}")
    return value


def _check_moment(value: str | None) -> str | None:
    if value is not None:
        parse_moment(value)
    return value


Hash = Annotated[str, AfterValidator(_check_hash)]
Moment = Annotated[str, AfterValidator(_check_moment)]


class PreviousSecret(Part):
    """The secret before a rotation."""

    hash: Hash | None = None
    """SHA-256 of it."""
    key_env: Variable | None = None
    """The variable that holds it, instead of its hash."""
    expires: Moment
    """The day until which it works (UTC), or the moment."""

    @model_validator(mode="after")
    def _is_one_secret(self) -> Self:
        if (self.hash is None) == (self.key_env is None):
            raise ValueError("needs either hash or key_env: those that the key had before")
        return self


class KeyEntry(Part):
    """A named key."""

    name: Name
    """Its name, for logs, metrics and traces."""
    hash: Hash | None = None
    """SHA-256 of the key, as `ir3de keys new` prints it: sha256:…"""
    key_env: Variable | None = None
    """The variable that holds the key, instead of its hash."""
    scopes: tuple[Scope, ...] = ("inference", "route", "models")
    """What it may do: requests to experts, decisions, models, /metrics, changes through /admin."""
    experts: tuple[str, ...] | None = None
    """The experts that may answer it; by default all."""
    previous: PreviousSecret | None = None
    """The secret before a rotation, which works, too, until it expires."""
    expires: Moment | None = None
    """The day until which it works (UTC), or the moment: 2027-01-31, 2027-01-31T12:00:00+01:00"""
    disabled: bool = False
    """Whether it is rejected."""
    limits: KeyLimits = KeyLimits()
    """How much it may use."""

    @field_validator("name")
    @classmethod
    def _is_printable(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError(f"must be printable, found {value!r}")
        return value

    @model_validator(mode="after")
    def _has_one_secret(self) -> Self:
        if (self.hash is None) == (self.key_env is None):
            raise ValueError("needs either hash or key_env: `ir3de keys new` prints an entry with its hash")
        return self


class KeysFile(Part):
    """The keys of a gateway."""

    version: Literal[1] = 1
    """Version of this format."""
    keys: tuple[KeyEntry, ...] = Field(max_length=MAX_KEYS)
    """The keys; with an empty list, no client has access."""

    @model_validator(mode="after")
    def _differ(self) -> Self:
        seen = dict[tuple[str, str], int]()
        for place, entry in enumerate(self.keys):
            for field, value in _list_unique(entry):
                if (first := seen.setdefault((field.rpartition(".")[2], value), place)) != place:
                    raise ValueError(f"keys.{place}.{field}: keys.{first} has the same: keep one of them")
        return self


def _list_unique(entry: KeyEntry) -> Iterator[tuple[str, str]]:
    """The fields that no other key may have, with their values."""
    yield "name", entry.name
    for prefix, secret in (("", entry), ("previous.", entry.previous)):
        if secret is not None and secret.hash is not None:
            yield f"{prefix}hash", secret.hash.lower()
        if secret is not None and secret.key_env is not None:
            yield f"{prefix}key_env", secret.key_env


def parse_moment(text: str) -> float:
    """A day or a moment in seconds since 1970; a day ends at midnight UTC.

    >>> parse_moment("1970-01-01"), parse_moment("1970-01-01T01:00:00+01:00"), parse_moment("1970-01-01T00:00:05Z")
    (86400.0, 0.0, 5.0)
    """
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return datetime.combine(date.fromisoformat(text), time.min, UTC).timestamp() + 86_400
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise ValueError(f"must look like 2027-01-31 or 2027-01-31T12:00:00Z, found {text!r}") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def read_keys_file(path: Path, *, secrets: bool = True) -> KeysFile:
    """The keys file, or an `InputError` with all its problems; with `secrets`, the variables it names must be set."""
    return parse_keys(read_document(path, "keys file", _ADVICE), secrets=secrets)


def parse_keys(document: Document, *, secrets: bool = True) -> KeysFile:
    """The keys of a document."""
    if not isinstance(document.value, dict):
        raise InputError(
            f"{document.name}: expected `keys:` and the list of keys below it, found {describe_value(document.value)}: "
            "`ir3de keys new NAME` prints an entry of that list"
        )
    literal = [_advise(finding) for finding in findings.find_literal_secrets(document, document.value, ())]
    try:
        found = KeysFile.model_validate_json(json.dumps(document.value), strict=True)
    except ValidationError as error:
        reported = {finding.where for finding in literal}
        wrong = findings.convert_errors(document, list_faults(error), KeysFile)
        wrong = [one for one in wrong if one.where not in reported]
        raise ConfigError(document.name, sort_findings([*literal, *wrong])) from None
    instead = "write the key's hash instead"
    if secrets and (unset := findings.find_unset_variables(document, document.value, instead)):
        raise ConfigError(document.name, unset)
    return found


def _advise(finding: Finding) -> Finding:
    text = "no keys in the file: write hash: sha256:… (`ir3de keys new` prints one), or key_env: NAME_OF_A_VARIABLE"
    return Finding("error", finding.where, text, finding.line)


# what `ir3de config validate` reports ---------------------------------------------------------------------------


def check_keys_file(config: Config) -> list[Finding]:
    """Problems of the keys file, with its lines; unknown experts; expired keys; budgets without effect."""
    if config.server.keys_file is None:
        return []
    path = Path(config.server.keys_file)
    try:
        document = read_document(path, "keys file", _ADVICE)
        entries = parse_keys(document).keys
    except ConfigError as error:
        return [replace(finding, where=f"{path.name}: {finding.where}") for finding in error.findings]
    except IR3DEError as error:
        return [Finding("error", "server.keys_file", str(error))]
    warnings: list[tuple[FieldPath, str]] = []
    for place, entry in enumerate(entries):
        for name in (name for name in entry.experts or () if name not in config.by_name):
            text = f"there is no expert {name!r}: there are {', '.join(config.by_name)}"
            warnings.append((("keys", place, "experts"), text))
        if entry.expires is not None and not entry.disabled and parse_moment(entry.expires) <= now():
            text = f"the key {entry.name!r} has expired and is rejected: remove it, or give it a later day"
            warnings.append((("keys", place, "expires"), text))
        warnings += [(("keys", place, "limits", field), text) for field, text in _check_budgets(entry, config)]
    return [
        Finding("warning", f"{path.name}: {join_path(where)}", text, document.line(where)) for where, text in warnings
    ]


def _check_budgets(entry: KeyEntry, config: Config) -> Iterator[tuple[str, str]]:
    """Budgets that reject everything, or that nothing uses up."""
    usable = [expert for name, expert in config.by_name.items() if entry.experts is None or name in entry.experts]
    is_free = not any(expert.price.input_per_1m or expert.price.output_per_1m for expert in usable)
    for field in ("budget_per_day", "budget_per_month"):
        budget = getattr(entry.limits, field)
        if budget == 0:
            yield field, f"a budget of 0 rejects every request of {entry.name!r}: leave it out for no limit"
        elif budget is not None and usable and is_free:
            whose = "no expert has a price" if entry.experts is None else "its experts have no price"
            yield field, f"is never reached, because {whose}: set `price` for the experts in the configuration"
