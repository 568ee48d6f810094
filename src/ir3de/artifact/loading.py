"""A router out of its folder: the read side at once, what only changes need when it is first asked for."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ir3de.artifact.damage import HEADER, name_damage, refuse_serving
from ir3de.artifact.domain_files import restore_domains
from ir3de.artifact.folder import parse_header, read_history
from ir3de.artifact.mapping import map_ballots, map_table
from ir3de.artifact.outcome_files import restore_outcomes
from ir3de.artifact.part_files import checked_path, read_part
from ir3de.embedding import Embedding, Matrix, Proof, Tokenizer
from ir3de.embedding.defaults import find_version
from ir3de.errors import ArtifactError, EmbeddingError, MismatchError
from ir3de.fitting.parts import RouterParts, TrainingData
from ir3de.policies import Familiarity, Membership, Policy
from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.decision import DecisionRules
from ir3de.routing.valuation import Valuation
from ir3de.scorers.table import Table
from ir3de.selectors import SELECTORS
from ir3de.storage import files
from ir3de.storage.packing import unpack_gzip
from ir3de.storage.tensors import Tensors, from_safetensors, read_tensors

_ATTEMPTS = 100  # to read a router that is being replaced all the time


def stamp(path: Path) -> tuple[int, int] | None:
    """Tells a file from the one that is renamed into its place."""
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_ino
    return None


def read_header_file(folder: Path) -> bytes:
    """The header's file of a router's folder as it is now; or an error that says what is there instead."""
    try:
        found = "" if folder.is_dir() else "it is a file" if folder.exists() else "there is no such folder"
    except OSError as error:  # a name that is too long
        found = error.strerror or str(error)
    if found:
        raise ArtifactError(f"no router at {folder}: {found}. Name the folder of one, or make one with `ir3de fit`")
    if not (folder / HEADER).is_file():
        raise ArtifactError(
            f"no router at {folder}: it holds no {HEADER}. Name the folder of one, or copy the whole folder again"
        )
    return files.read(folder / HEADER)


def load_router(path: str | Path, *, mapped: bool = False, derived: str | Path | None = None) -> RouterParts:
    """Read a router's table and tokenizer; statistics and matrix are read when a change first needs them.

    With `mapped`, table and ballots are shared with every other process on the machine that maps them. With `derived`,
    both lie in that folder: the table as a copy, so that the router's files may be overwritten in place. Otherwise the
    table is mapped where it is, and the ballots are written beside it.
    """
    folder = Path(path).expanduser()
    for attempt in range(_ATTEMPTS):
        before = stamp(folder / HEADER)
        try:
            header = parse_header(read_header_file(folder), folder)
            return load_described(folder, header, mapped=mapped, derived=derived)
        except ArtifactError:
            if stamp(folder / HEADER) == before or attempt == _ATTEMPTS - 1:
                raise
            # replaced between reading the header and its files: read the new one
    raise AssertionError("the last attempt has raised")


def load_described(
    folder: Path, header: Mapping[str, Any], *, mapped: bool = False, derived: str | Path | None = None
) -> RouterParts:
    """The router of a folder that this header describes, and no other: an error if it is replaced meanwhile."""
    shared = (folder if derived is None else Path(derived).expanduser()) if mapped else None
    with name_damage(folder):
        embedding = lru_cache(maxsize=1)(partial(_load_embedding, folder, header))
        training: TrainingData
        valuation: Valuation
        if "outcomes" in header:
            training, valuation = restore_outcomes(folder, header)
        else:
            training, valuation = restore_domains(folder, header, embedding)
        rules = _restore_rules(header, valuation)
        table = _load_table(folder, header, shared)
        if table is None:
            shared = None  # the one that is made here is nobody else's
            if header["serving"]:
                raise ArtifactError(
                    f"{folder / header['table']['name']} is missing, and a serving copy cannot rebuild it"
                )
            table = training.build_table(embedding(), rules)
        if table.scores.shape[1] != rules.columns:
            raise ValueError(f"{len(rules.experts)} experts, but a table of {table.scores.shape[1]}")
        return RouterParts(
            CompiledRouter.build(rules, table)
            if shared is None
            else CompiledRouter(rules, table, map_ballots(shared, header["table"]["sha256"], table, rules.selector)),
            _load_tokenizer(folder, header["tokenizer"]),
            header["embedding"]["fingerprint"],
            embedding,
            training,
            lru_cache(maxsize=1)(partial(read_history, folder, header["sha256"])),
            saved=header["sha256"],
        )


def _restore_rules(header: Mapping[str, Any], valuation: Valuation) -> DecisionRules:
    experts = [expert["name"] for expert in header["experts"]]
    familiarity, membership = header["familiarity"], header.get("membership")
    return DecisionRules(
        tuple(experts),
        SELECTORS.restore(header["selector"]),
        None if header["default"] is None else experts.index(header["default"]),
        valuation,
        None if familiarity is None else Familiarity(**familiarity),
        None if membership is None else Membership(**membership),
        Policy(**header["policy"]),
    )


def _load_table(folder: Path, header: Mapping[str, Any], shared: Path | None) -> Table | None:
    path = folder / header["table"]["name"]
    if not path.is_file():
        return None
    tensors: Tensors
    try:
        if shared is not None:
            tensors = map_table(folder, header["table"], shared)
        else:
            tensors, _ = from_safetensors(read_part(folder, header["table"]), path)
    except ArtifactError as error:
        remedy = "" if header["serving"] else ". Or delete it: it is then rebuilt from the statistics"
        raise ArtifactError(f"{error}{remedy}") from error
    return Table.restore(**{_EARLIER_NAMES.get(name, name): tensor for name, tensor in tensors.items()})


_EARLIER_NAMES = {"usualness": "familiarity"}  # of a table's tensors in version 0.1


def _load_tokenizer(folder: Path, part: Mapping[str, Any]) -> Tokenizer:
    proof = Proof(**part["fast_engine"]) if part["fast_engine"] else None
    cache = None
    with suppress(ArtifactError):  # only a shortcut: without it the fast engine compiles the tokenizer again
        cache = read_part(folder, part["fast_file"]) if part["fast_file"] else None
    packed = read_part(folder, part["file"])  # checked now, unpacked if it is ever needed
    with _tokenizers_turn:
        if (known := _tokenizers.get(key := repr((part, cache is None)))) is not None:
            return known
        definition = partial(unpack_gzip, packed, str(folder / part["file"]["name"]))
        made = Tokenizer(definition, proof=proof, fast_cache=cache, unknown_id=part["unknown_id"])
        _tokenizers[key] = made
        return made


# a tokenizer takes twenty megabytes: routers of a process that have the same one, such as an old and a new, share it
_tokenizers: WeakValueDictionary[str, Tokenizer] = WeakValueDictionary()
_tokenizers_turn = threading.Lock()


def _load_embedding(folder: Path, header: Mapping[str, Any]) -> Embedding:
    with name_damage(folder):
        refuse_serving(folder, header)
        part = header["embedding"]
        if "file" not in part:
            embedding = _default_embedding(folder, part)
        else:
            tensors, extra = read_tensors(checked_path(folder, part["file"]), sha256=part["file"]["sha256"])
            tokenizer = _load_tokenizer(folder, header["tokenizer"])
            embedding = Embedding(tokenizer, Matrix(tensors, extra["width"]), name=part["name"])
        if embedding.fingerprint != part["fingerprint"]:
            raise MismatchError(
                f"the router at {folder} was fitted with embedding {part['fingerprint'][:12]}, "
                f"found {embedding.fingerprint[:12]}: it can still route, but not change. "
                "Fit it again with this version of ir3de"
            )
        return embedding


def _default_embedding(folder: Path, part: Mapping[str, Any]) -> Embedding:
    """The version of the default embedding that a header names; one of ir3de 0.1 is recognised by its fingerprint."""
    version = part.get("default_version", find_version(part["fingerprint"]))
    try:
        if version is None:
            raise EmbeddingError(f"no default embedding of this ir3de has the fingerprint {part['fingerprint'][:12]}")
        return Embedding.default(version)
    except EmbeddingError as error:
        raise MismatchError(f"the router at {folder} can route, but not change: {error}") from error
