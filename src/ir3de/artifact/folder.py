"""A router is a folder.

`router.json` names every other file by the hash of its content and is written last, by renaming: until then a
reader sees the old router, whole, and after it the new one, whole. No file is ever overwritten with another content.

    router.json                        what the router is, and which files belong to it
    statistics-<sha>.safetensors       one per expert: the truth, in integers
    contribution-<sha>.stats           what owners gave an expert, as they gave it
    ledger.jsonl                       what was done to the router; named by no header, nothing depends on it
    outcomes-<sha>.safetensors         instead of those, where the router was fitted from outcomes
    gram-<sha>.safetensors             one per expert where the embedding is wide; derived, like the table
    embedding-<sha>.safetensors        the matrix, unless it is the bundled one
    table-<sha>.safetensors            derived: may be deleted and is then rebuilt
    ballots-<sha>.safetensors          derived from the table by the first process that maps it; named by no header
    tokenizer-<sha>.json.gz            the tokenizer
    tokenizer-<sha>.tkz.gz             derived: the fast engine's compiled form

A serving copy holds the table and the tokenizer alone.
"""

from __future__ import annotations

import gzip
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ir3de.artifact.damage import HEADER, name_damage
from ir3de.artifact.domain_files import describe_domains
from ir3de.artifact.outcome_files import describe_outcomes
from ir3de.artifact.part_files import LEDGER, Parts, is_ours
from ir3de.embedding.defaults import find_version
from ir3de.embedding.tokenizer import GZIP_LEVEL
from ir3de.errors import ArtifactError
from ir3de.fitting.parts import RouterParts
from ir3de.policies import Calibration, Familiarity, Membership, Policy
from ir3de.scorers.table import Table
from ir3de.selectors import SELECTORS
from ir3de.storage import files
from ir3de.storage.ledger import History, extend_history, from_lines, to_lines, trim_history
from ir3de.storage.tensors import make_tensor_file, to_safetensors

KIND, VERSION = "ir3de.router", 1


def save_router(router: RouterParts, path: str | Path, *, serving: bool = False) -> tuple[Path, History]:
    """Write a router to a folder, replacing whatever router is there in one step; where it is, and its history."""
    folder = check_destination(path, serving=serving)
    parts = Parts(folder)
    described = {"kind": KIND, "version": VERSION, "serving": serving, **_describe(router, parts, serving)}
    header = files.seal(described)
    history = router.history()
    if not serving:
        history = extend_history(history, router.changes, header["sha256"], before=router.saved)
    with files.lock_folder(folder):  # another writer would drop parts that no header names yet
        parts.write()
        if not serving:  # before the header: an entry too many is told from one that came to be, one too few is not
            files.write(folder / LEDGER, to_lines(history))
        files.write(folder / HEADER, files.to_json(header))
        parts.drop_all_others()
    return folder, history


def save_policy(path: str | Path, policy: Policy, default: str | None) -> None:
    """Give the router in a folder another policy and default expert: only its header is written, in one step."""
    folder = Path(path).expanduser()
    with files.lock_folder(folder):
        header = read_header(folder)
        header_sha256 = header.pop("sha256")
        changed = files.seal({**header, "policy": policy.to_dict(), "default": default})
        if not header["serving"]:
            history = extend_history(read_history(folder, header_sha256), (), changed["sha256"], before=header_sha256)
            files.write(folder / LEDGER, to_lines(history))
        files.write(folder / HEADER, files.to_json(changed))


def read_history(folder: Path, router: str) -> History:
    """What was done to the router of that hash in a folder; a folder without a ledger has none."""
    path = folder / LEDGER
    return trim_history(from_lines(files.read(path), path), router) if path.is_file() else ()


def check_destination(path: str | Path, *, serving: bool = False) -> Path:
    """The folder to save a router in; refuses a file, a folder that holds other things, and to lose a whole router."""
    folder = Path(path).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ArtifactError(f"cannot save a router at {folder}: it is a file, and a router is a folder")
    if folder.is_dir() and not (folder / HEADER).is_file() and not all(map(is_ours, folder.iterdir())):
        raise ArtifactError(
            f"cannot save a router at {folder}: the folder holds other files; choose a new or empty one"
        )
    if serving and (folder / HEADER).is_file() and not read_header(folder)["serving"]:
        raise ArtifactError(
            f"{folder} holds a whole router, and a serving copy in its place would lose its statistics: "
            "choose another folder"
        )
    return folder


def _describe(router: RouterParts, parts: Parts, serving: bool) -> dict[str, Any]:
    compiled, tokenizer = router.compiled, router.tokenizer
    experts: list[dict[str, Any]] = [{"name": name} for name in compiled.experts]
    embedding: dict[str, Any] = {"fingerprint": router.fingerprint}
    if (version := find_version(router.fingerprint)) is not None:
        embedding["default_version"] = version
    if not serving:
        stored = router.embedding()
        embedding["name"] = stored.name
        if version is None:
            content = make_tensor_file(stored.stored.tensors, {"width": stored.width})
            embedding["file"] = parts.add("embedding", ".safetensors", content)
    describe_training: Any = describe_outcomes if router.training.kind == "outcomes" else describe_domains
    described = describe_training(router, router.training, experts, parts, serving=serving)
    proof, cache = tokenizer.proof, tokenizer.fast_cache
    return {
        "experts": experts,
        "default": None if compiled.default is None else compiled.experts[compiled.default],
        "selector": SELECTORS.describe(compiled.selector),
        "calibration": _plain(compiled.rules.calibration),
        "familiarity": _plain(compiled.rules.familiarity),
        "membership": _plain(compiled.rules.membership),
        "policy": compiled.rules.policy.to_dict(),
        "embedding": embedding,
        "tokenizer": {
            "file": parts.add("tokenizer", ".json.gz", _compress(tokenizer.definition)),
            "unknown_id": tokenizer.unknown_id,
            "fast_engine": None if proof is None else proof.to_dict(),
            "fast_file": None if cache is None else parts.add("tokenizer", ".tkz.gz", cache),
        },
        "table": parts.add("table", ".safetensors", _table_bytes(compiled.table)),
        **described,
    }


@lru_cache(maxsize=1)
def _compress(definition: bytes) -> bytes:
    """A tokenizer's definition as it is saved. Kept, because routers saved one after the other mostly share it."""
    return gzip.compress(definition, GZIP_LEVEL, mtime=0)


def read_header(folder: Path) -> files.Header:
    """What a router's folder says of itself, as it was sealed."""
    return parse_header(files.read(folder / HEADER), folder)


def parse_header(content: bytes, folder: Path) -> files.Header:
    """The same from what was read of the header's file in `folder`."""
    header = files.parse_json(content, folder / HEADER, kind=KIND, version=VERSION)
    files.check_seal(header, folder / HEADER)
    return header


def read_expert_names(path: str | Path) -> tuple[str, ...]:
    """The names of a router's experts; nothing but the header is read."""
    folder = Path(path).expanduser()
    header = read_header(folder)
    with name_damage(folder):
        return tuple(str(expert["name"]) for expert in header["experts"])


def _plain(value: Calibration | Familiarity | Membership | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def _table_bytes(table: Table) -> bytes:
    tensors: dict[str, npt.NDArray[Any]] = {
        "scores": table.scores,
        "vote": table.vote,
        "entropy": table.entropy,
        "rank": table.rank,
    }
    if table.familiarity is not None:
        tensors["familiarity"] = table.familiarity
    if table.pairs is not None:
        tensors["pairs"] = table.pairs
    return to_safetensors(tensors, {"kind": "ir3de.table", "version": 1})
