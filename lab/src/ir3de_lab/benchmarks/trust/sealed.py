"""Files that are changed and sealed again: what a publisher with bad intentions could offer, and no hash gives away."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from typing import Any

from ir3de_lab.benchmarks.trust.mutation import mutate_bytes, mutate_json

HEADER = "router.json"


def seal(header: dict[str, Any]) -> dict[str, Any]:
    """The header with the SHA-256 of the rest of it, as docs/format.md says."""
    rest = {name: value for name, value in header.items() if name != "sha256"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return {**rest, "sha256": hashlib.sha256(text.encode()).hexdigest()}


def change_router(files: dict[str, bytes], dice: random.Random) -> dict[str, bytes]:
    """The files of a router of which the header or one other file has changed, all hashes renewed."""
    header = json.loads(files[HEADER])
    changed = dict(files)
    if dice.random() < 0.6:
        header = mutate_json(header, dice)
    else:
        name = dice.choice(sorted(set(files) - {HEADER}))
        before, changed[name] = hashlib.sha256(files[name]).hexdigest(), change_tensors(files[name], dice)
        after = hashlib.sha256(changed[name]).hexdigest()
        header = json.loads(json.dumps(header).replace(before, after))
    if isinstance(header, dict):
        header = seal(header)
    changed[HEADER] = json.dumps(header).encode()
    return changed


def change_tensors(data: bytes, dice: random.Random) -> bytes:
    """A safetensors file with a changed description, or changed numbers, or changed bytes anywhere."""
    try:
        size = struct.unpack("<Q", data[:8])[0]
        described = json.loads(data[8 : 8 + size])
    except (ValueError, struct.error):
        return mutate_bytes([data], dice)
    if dice.random() < 0.3:
        return data[: 8 + size] + mutate_bytes([data[8 + size :]], dice)
    if dice.random() < 0.5 and "__metadata__" in described:
        header = mutate_json(json.loads(described["__metadata__"]["ir3de"]), dice)
        described["__metadata__"]["ir3de"] = json.dumps(seal(header) if isinstance(header, dict) else header)
    else:
        described = mutate_json(described, dice)
    text = json.dumps(described).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]
