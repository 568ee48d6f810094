"""A router is a folder.

`router.json` names every other file by the hash of its content and is written last, by renaming: until then a
reader sees the old router, whole, and after it the new one, whole. No file is ever overwritten with another content.

    router.json                        what the router is, and which files belong to it
    statistics-<sha>.safetensors       one per expert: the truth, in integers
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
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy.typing as npt

from ir3de import files
from ir3de.decisions import Compiled, Terms
from ir3de.embeddings import Embedding, Matrix, Proof, Tokenizer
from ir3de.embeddings.tokenizer import PACKING
from ir3de.errors import ArtifactError, MismatchError
from ir3de.expectations import Shrinkage
from ir3de.outcomes import Outcomes
from ir3de.policies import Calibration, Familiarity, Policy
from ir3de.scorers import Scorer
from ir3de.selectors import Selector
from ir3de.statistics import Statistics
from ir3de.storage.grams import attach_gram, describe_grams
from ir3de.storage.mapping import map_ballots
from ir3de.storage.outcome_files import (
    OutcomeParts,
    RestoredOutcomes,
    check_outcomes,
    describe_outcomes,
    describe_shrinkage,
    outcomes_bytes,
    outcomes_from,
    restore_outcomes,
)
from ir3de.storage.parts import Parts, checked_path, is_ours, read_part
from ir3de.storage.statistics_files import statistics_bytes, statistics_from
from ir3de.storage.strategies import SCORERS, SELECTORS, describe, restore
from ir3de.table import Table
from ir3de.tensor_files import map_tensors, read_tensors, tensor_file

HEADER = "router.json"
KIND, VERSION = "ir3de.router", 1

_ATTEMPTS = 100  # to read a router that is being replaced all the time


@dataclass(frozen=True)
class RouterParts:
    """All that a router is made of: the read side at hand, what only changes need behind a call."""

    compiled: Compiled
    tokenizer: Tokenizer
    scorer: Scorer | Shrinkage  # the latter where the router was fitted from outcomes
    fingerprint: str  # of the embedding
    embedding: Callable[[], Embedding]
    statistics: Callable[[], Mapping[str, Statistics]]
    trials: tuple[Mapping[str, Any], ...] = ()  # what tuning tried
    outcomes: OutcomeParts | None = None  # of a router fitted from outcomes, which has no statistics of domains


def save_router(router: RouterParts, path: str | Path, *, serving: bool = False) -> Path:
    """Write a router to a folder, replacing whatever router is there in one step."""
    folder = check_destination(path, serving=serving)
    parts = Parts(folder)
    header = {"kind": KIND, "version": VERSION, "serving": serving, **_describe(router, parts, serving)}
    with files.exclusive(folder):  # another writer would drop parts that no header names yet
        parts.write()
        files.write(folder / HEADER, files.to_json(files.sealed(header)))
        parts.drop_all_others()
    return folder


def save_policy(path: str | Path, policy: Policy, default: str) -> None:
    """Give the router in a folder another policy and default expert: only its header is written, in one step."""
    folder = Path(path).expanduser()
    with files.exclusive(folder):
        header = read_header(folder)
        del header["sha256"]
        changed = {**header, "policy": policy.to_dict(), "default": default}
        files.write(folder / HEADER, files.to_json(files.sealed(changed)))


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
    if not serving:
        stored = router.embedding()
        embedding["name"] = stored.name
        if stored.fingerprint != Embedding.default().fingerprint:
            content = tensor_file(stored.stored.tensors, {"width": stored.width})
            embedding["file"] = parts.add("embedding", ".safetensors", content)
        statistics = router.statistics() if router.outcomes is None else {}
        for expert in experts if router.outcomes is None else ():
            owned = statistics[expert["name"]]
            file = parts.add("statistics", ".safetensors", statistics_bytes(owned))
            kept = 0 if owned.sample is None else len(owned.sample)
            expert |= {"prompts": owned.prompts, "tokens": owned.tokens, "kept": kept}
            expert |= {"digest": owned.digest, "statistics": file}
        describe_grams(experts, statistics, router.scorer, stored.width, parts)
    proof, cache = tokenizer.proof, tokenizer.fast_cache
    described = _describe_outcomes(router, experts, parts, serving)
    return {
        "experts": experts,
        "default": compiled.experts[compiled.default],
        "scorer": _described_scorer(router.scorer),
        "selector": describe(compiled.selector, SELECTORS),
        "calibration": _plain(compiled.terms.calibration),
        "familiarity": _plain(compiled.terms.familiarity),
        "policy": compiled.terms.policy.to_dict(),
        "trials": list(router.trials),
        "embedding": embedding,
        "tokenizer": {
            "file": parts.add("tokenizer", ".json.gz", gzip.compress(tokenizer.definition, PACKING, mtime=0)),
            "unknown_id": tokenizer.unknown_id,
            "fast_engine": None if proof is None else asdict(proof),
            "fast_file": None if cache is None else parts.add("tokenizer", ".tkz.gz", cache),
        },
        "table": parts.add("table", ".safetensors", _table_bytes(compiled.table)),
        **described,
    }


def _describe_outcomes(
    router: RouterParts, experts: list[dict[str, Any]], parts: Parts, serving: bool
) -> dict[str, Any]:
    """The fields that only a router from outcomes has; how many scores each model has is added to `experts`."""
    expectation = router.compiled.terms.expectation
    if router.outcomes is None or expectation is None:
        return {}
    described = describe_outcomes(expectation, router.outcomes)
    if not serving:
        sums = router.outcomes.sums()
        for expert in experts:
            expert["prompts"] = sums.rows(expert["name"])
        described["file"] = parts.add("outcomes", ".safetensors", outcomes_bytes(sums))
    return {"outcomes": described}


def _described_scorer(scorer: Scorer | Shrinkage) -> dict[str, Any]:
    return describe_shrinkage(scorer) if isinstance(scorer, Shrinkage) else describe(scorer, SCORERS)


def load_router(path: str | Path, *, mapped: bool = False, derived: str | Path | None = None) -> RouterParts:
    """Read a router's table and tokenizer; statistics and matrix are read when a change first needs them.

    With `mapped`, table and ballots are shared with every other process on the machine that maps them; the ballots are
    written to the folder `derived`, otherwise to the router's own.
    """
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ArtifactError(
            f"no router at {folder}: " + ("it is a file" if folder.exists() else "there is no such folder")
        )
    shared = (folder if derived is None else Path(derived).expanduser()) if mapped else None
    for _ in range(_ATTEMPTS):
        header = stamp(folder / HEADER)
        try:
            return _load(folder, shared)
        except ArtifactError:
            if stamp(folder / HEADER) == header:
                raise
            # replaced between reading the header and its files: read the new one
    return _load(folder, shared)


def stamp(path: Path) -> tuple[int, int] | None:
    """Tells a file from the one that is renamed into its place."""
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_ino
    return None


def _load(folder: Path, shared: Path | None) -> RouterParts:
    if not (folder / HEADER).is_file():
        raise ArtifactError(f"no router at {folder}: it holds no {HEADER}")
    header = read_header(folder)
    with _damage_named(folder):
        embedding = lru_cache(maxsize=1)(partial(_embedding, folder, header))
        statistics = lru_cache(maxsize=1)(partial(_all_statistics, folder, header))
        outcomes = None
        if "outcomes" in header:
            outcomes = restore_outcomes(header, lru_cache(maxsize=1)(partial(_outcomes, folder, header)))
        scorer: Any = restore(header["scorer"], SCORERS) if outcomes is None else outcomes.expectation.shrinkage
        selector = restore(header["selector"], SELECTORS)
        experts = [expert["name"] for expert in header["experts"]]
        table = _load_table(folder, header, mapped=shared is not None)
        if table is None:
            shared = None  # the one that is made here is nobody else's
            if header["serving"]:
                raise ArtifactError(
                    f"{folder / header['table']['name']} is missing, and a serving copy cannot rebuild it"
                )
            if outcomes is not None:
                table = outcomes.table(embedding().rows)
            else:
                table = _rebuilt(header, scorer, selector, list(statistics().values()), embedding())
        terms = _terms(header, experts, selector, outcomes)
        if table.scores.shape[1] != terms.columns:
            raise ValueError(f"{len(experts)} experts, but a table of {table.scores.shape[1]}")
        return RouterParts(
            Compiled.build(terms, table)
            if shared is None
            else Compiled(terms, table, map_ballots(shared, header["table"]["sha256"], table, selector)),
            _tokenizer(folder, header["tokenizer"]),
            scorer,
            header["embedding"]["fingerprint"],
            embedding,
            statistics,
            tuple(header["trials"]),
            None if outcomes is None else outcomes.parts,
        )


def _rebuilt(
    header: Mapping[str, Any], scorer: Scorer, selector: Selector, domains: list[Statistics], embedding: Embedding
) -> Table:
    """The table that the file held, from the statistics."""
    usualness, unknown = header["familiarity"] is not None, header["tokenizer"]["unknown_id"]
    return Table.of(
        scorer, domains, embedding.rows, log_offset=selector.log_offset, usualness=usualness, unknown=unknown
    )


def _terms(
    header: Mapping[str, Any], experts: list[str], selector: Selector, outcomes: RestoredOutcomes | None
) -> Terms:
    calibration, familiarity = header["calibration"], header["familiarity"]
    return Terms(
        tuple(experts),
        selector,
        experts.index(header["default"]),
        None if calibration is None else Calibration(**calibration),
        None if familiarity is None else Familiarity(**familiarity),
        Policy(**header["policy"]),
        None if outcomes is None else outcomes.expectation,
    )


def _plain(value: Calibration | Familiarity | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def read_header(folder: Path) -> files.Header:
    """What a router's folder says of itself, as it was sealed."""
    header = files.read_json(folder / HEADER, kind=KIND, version=VERSION)
    files.check_seal(header, folder / HEADER)
    return header


@contextmanager
def _damage_named(folder: Path) -> Iterator[None]:
    """What goes wrong in reading a header's fields is damage to the header."""
    try:
        yield
    except MismatchError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(
            f"{folder / HEADER} is damaged: {error!r}. Copy it again from where it came from"
        ) from error


def _table_bytes(table: Table) -> bytes:
    tensors: dict[str, npt.NDArray[Any]] = {
        "scores": table.scores,
        "vote": table.vote,
        "entropy": table.entropy,
        "rank": table.rank,
    }
    if table.usualness is not None:
        tensors["usualness"] = table.usualness
    if table.pairs is not None:
        tensors["pairs"] = table.pairs
    return files.to_safetensors(tensors, {"kind": "ir3de.table", "version": 1})


def _load_table(folder: Path, header: Mapping[str, Any], *, mapped: bool) -> Table | None:
    path = folder / header["table"]["name"]
    if not path.is_file():
        return None
    tensors: files.Tensors
    try:
        if mapped:
            tensors, _ = map_tensors(checked_path(folder, header["table"]), sha256=header["table"]["sha256"])
        else:
            tensors, _ = files.from_safetensors(read_part(folder, header["table"]), path)
    except ArtifactError as error:
        remedy = "" if header["serving"] else ". Or delete it: it is then rebuilt from the statistics"
        raise ArtifactError(f"{error}{remedy}") from error
    return Table(**tensors)


def _tokenizer(folder: Path, part: Mapping[str, Any]) -> Tokenizer:
    proof = Proof(**part["fast_engine"]) if part["fast_engine"] else None
    cache = None
    with suppress(ArtifactError):  # only a shortcut: without it the fast engine compiles the tokenizer again
        cache = read_part(folder, part["fast_file"]) if part["fast_file"] else None
    packed = read_part(folder, part["file"])  # checked now, unpacked if it is ever needed
    with _tokenizers_turn:
        if (known := _tokenizers.get(key := repr((part, cache is None)))) is not None:
            return known
        made = Tokenizer(partial(gzip.decompress, packed), proof=proof, fast_cache=cache, unknown_id=part["unknown_id"])
        _tokenizers[key] = made
        return made


# a tokenizer takes twenty megabytes: routers of a process that have the same one, such as an old and a new, share it
_tokenizers: WeakValueDictionary[str, Tokenizer] = WeakValueDictionary()
_tokenizers_turn = threading.Lock()


def _embedding(folder: Path, header: Mapping[str, Any]) -> Embedding:
    with _damage_named(folder):
        _refuse_serving(folder, header)
        part = header["embedding"]
        if "file" not in part:
            embedding = Embedding.default()
        else:
            tensors, extra = read_tensors(checked_path(folder, part["file"]), sha256=part["file"]["sha256"])
            tokenizer = _tokenizer(folder, header["tokenizer"])
            embedding = Embedding(tokenizer, Matrix(tensors, extra["width"]), name=part["name"])
        if embedding.fingerprint != part["fingerprint"]:
            raise MismatchError(
                f"the router at {folder} was fitted with embedding {part['fingerprint'][:12]}, "
                f"found {embedding.fingerprint[:12]}: it can still route, but not change. "
                "Fit it again with this version of ir3de"
            )
        return embedding


def _all_statistics(folder: Path, header: Mapping[str, Any]) -> dict[str, Statistics]:
    with _damage_named(folder):
        _refuse_serving(folder, header)
        found = {}
        for expert in header["experts"]:
            file = expert["statistics"]
            found[expert["name"]] = statistics_from(read_part(folder, file), folder / file["name"])
            attach_gram(folder, expert, found[expert["name"]])
        return found


def _outcomes(folder: Path, header: Mapping[str, Any]) -> Outcomes:
    with _damage_named(folder):
        _refuse_serving(folder, header)
        file, models = header["outcomes"]["file"], [expert["name"] for expert in header["experts"]]
        found = outcomes_from(read_part(folder, file), folder / file["name"])
        return check_outcomes(found, header["embedding"]["fingerprint"], models, folder)


def _refuse_serving(folder: Path, header: Mapping[str, Any]) -> None:
    if header["serving"]:
        raise ArtifactError(
            f"{folder} is a serving copy: it can route, but not change. Change the router it was made from"
        )
