"""Keys files for the tests."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from raw_sockets import ask
from running_gateway import Running


def secret(name: str) -> str:
    """The key of that name."""
    return f"sk-ir3de-{name}"


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret(name)}"}


def key(name: str, **fields: Any) -> dict[str, Any]:
    """An entry of a keys file; limits are among the fields."""
    own = {field: fields.pop(field) for field in ("scopes", "experts", "expires", "disabled") if field in fields}
    digest = hashlib.sha256(secret(name).encode()).hexdigest()
    return {"name": name, "hash": f"sha256:{digest}", **own, **({"limits": fields} if fields else {})}


def write_keys(path: Path, *keys: dict[str, Any]) -> Path:
    """A keys file, in the place of an earlier one in one step."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"version": 1, "keys": keys}))
    fresh.replace(path)
    return path


def describe(gateway: Running, name: str) -> dict[str, Any]:
    """A key as /admin lists it."""
    listed = ask(gateway.url, path="/admin/keys", authorization="Bearer root").json
    return next(row for row in listed["data"] if row["name"] == name)
