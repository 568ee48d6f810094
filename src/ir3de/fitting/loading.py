"""Loading a router: what routing needs at once, what only changes need when it is first used.

A mapped router has its numbers as views on files: processes on one machine then have them in memory once. Ballots are
computed from the table, and would be every process's own: the first process that maps a router writes them to
`ballots-<sha>.safetensors`, named by the table and the selector they belong to. No header names them, they may be
deleted at any time, and damaged ones are written again.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from ir3de import files, kernel
from ir3de.embedding import Embedding, Matrix, Proof, Tokenizer
from ir3de.embedding.readers import find_version
from ir3de.errors import ArtifactError, EmbeddingError, MismatchError
from ir3de.files.router_folder import (
    ROUTER_HEADER_FILE,
    Part,
    checked_path,
    drop_older,
    map_table,
    name_damage,
    parse_header,
    read_header_file,
    read_history,
    read_part,
    refuse_serving,
    stamp,
)
from ir3de.files.streams import unpack_gzip
from ir3de.files.tensors import Tensors, from_safetensors, map_tensors, read_tensors, to_safetensors
from ir3de.fitting.domain_training import DomainTraining
from ir3de.fitting.inputs import count_built_in
from ir3de.fitting.opinion_files import read_opinion, restore_vectors
from ir3de.fitting.outcomes import OutcomeTraining, add_held
from ir3de.fitting.parts import RouterParts, TrainingData
from ir3de.fitting.saving import GRAM, GRAM_VERSION, SUBJECTS, SUBJECTS_VERSION
from ir3de.fitting.teaching_report import Teaching
from ir3de.policies import AssumedCalibration, Calibration, Familiarity, Membership, Policy
from ir3de.routing.compiled import CompiledRouter
from ir3de.routing.rules import DecisionRules
from ir3de.routing.valuation import ExpectedScores, Probabilities, Valuation
from ir3de.scorers.expectation import restore_expectation
from ir3de.scorers.registry import SCORERS
from ir3de.scorers.ridge import Gram, remember
from ir3de.scorers.subjects import Subjects
from ir3de.scorers.table import Table
from ir3de.selectors import SELECTORS, Ballots, Selector
from ir3de.statistics.contributions import Holding, restore_contribution
from ir3de.statistics.domain import Statistics
from ir3de.statistics.files import check_outcomes, outcomes_from, read_statistics
from ir3de.statistics.outcomes import Outcomes

BALLOTS, BALLOTS_VERSION = "ir3de.ballots", 2  # 1 called the familiarity `usualness`
_EARLIER_NAMES = {"usualness": "familiarity"}  # of a table's tensors in version 0.1
_ATTEMPTS = 100  # to read a router that is being replaced all the time

Header = Mapping[str, Any]


def load_router(path: str | Path, *, mapped: bool = False, derived: str | Path | None = None) -> RouterParts:
    """Read a router's table and tokenizer; statistics and matrix are read when a change first needs them.

    With `mapped`, table and ballots are shared with every other process on the machine that maps them. With `derived`,
    both are in that folder: the table as a copy, so that the router's files may be overwritten in place. Otherwise the
    table is mapped where it is, and the ballots are written next to it.
    """
    folder = Path(path).expanduser()
    for attempt in range(_ATTEMPTS):
        before = stamp(folder / ROUTER_HEADER_FILE)
        try:
            header = parse_header(read_header_file(folder), folder)
            return load_described(folder, header, mapped=mapped, derived=derived)
        except ArtifactError:
            if stamp(folder / ROUTER_HEADER_FILE) == before or attempt == _ATTEMPTS - 1:
                raise
            # replaced between reading the header and its files: read the new one
    raise AssertionError("the last attempt has raised")


def load_described(
    folder: Path, header: Header, *, mapped: bool = False, derived: str | Path | None = None
) -> RouterParts:
    """The router of a folder that this header describes, and no other: an error if it is replaced meanwhile."""
    shared = (folder if derived is None else Path(derived).expanduser()) if mapped else None
    with name_damage(folder):
        embedding = lru_cache(maxsize=1)(partial(_load_embedding, folder, header))
        training: TrainingData
        valuation: Valuation
        if "outcomes" in header:
            training, valuation = _restore_outcomes(folder, header)
        else:
            training, valuation = _restore_domains(folder, header, embedding)
        rules = _restore_rules(folder, header, valuation)
        table = _load_table(folder, header, shared)
        if table is None:
            shared = None  # a table that is built here is not in any file
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
            else CompiledRouter(rules, table, _map_ballots(shared, header["table"]["sha256"], table, rules.selector)),
            _load_tokenizer(folder, header["tokenizer"]),
            header["embedding"]["fingerprint"],
            embedding,
            training,
            lru_cache(maxsize=1)(partial(read_history, folder, header["sha256"])),
            saved=header["sha256"],
        )


def _restore_rules(folder: Path, header: Header, valuation: Valuation) -> DecisionRules:
    experts = [expert["name"] for expert in header["experts"]]
    familiarity, membership = header["familiarity"], header.get("membership")
    return DecisionRules(
        tuple(experts),
        SELECTORS.restore(header["selector"]),
        None if header["default"] is None else experts.index(header["default"]),
        valuation,
        None if familiarity is None else Familiarity(**familiarity),
        None if membership is None else _restore_membership(folder, membership),
        Policy(**header["policy"]),
        None if "opinion" not in header else read_opinion(folder, header["opinion"]),
    )


def _restore_membership(folder: Path, described: Mapping[str, Any]) -> Membership:
    if (file := described.get("subjects")) is None:
        return Membership(**described)
    path = folder / file["name"]
    tensors, header = from_safetensors(read_part(folder, file), path)
    files.check_kind(header, SUBJECTS, SUBJECTS_VERSION, path)
    means, spreads = ((float(one), float(other)) for one, other in (header["means"], header["spreads"]))
    return Membership(**{**described, "subjects": Subjects(**tensors, means=means, spreads=spreads)})


# --- table and ballots


def _load_table(folder: Path, header: Header, shared: Path | None) -> Table | None:
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


def _map_ballots(folder: Path, table_sha256: str, table: Table, selector: Selector) -> Ballots:
    """The selector's ballots, mapped from a file that is written first; as arrays where it cannot be written."""
    described = json.dumps(SELECTORS.describe(selector), sort_keys=True)
    layout = "" if kernel.native is None else " narrow"
    key = hashlib.sha256(f"{BALLOTS_VERSION}{layout} {table_sha256} {described}".encode()).hexdigest()
    path = folder / f"ballots-{key[:16]}.safetensors"
    with suppress(ArtifactError):
        return _read_ballots(path, key)
    made = None
    with suppress(ArtifactError), files.lock_folder(folder):  # of processes that start together, one writes
        with suppress(ArtifactError):
            return _read_ballots(path, key)
        made = selector.ballots(table)
        _write_ballots(path, made, key)
        return _read_ballots(path, key)
    return made or selector.ballots(table)


def _write_ballots(path: Path, made: Ballots, key: str) -> None:
    found = {field.name: getattr(made, field.name) for field in fields(made) if field.name != "limit"}
    tensors = {name: tensor for name, tensor in found.items() if tensor is not None}
    header = {"kind": BALLOTS, "version": BALLOTS_VERSION, "of": key, "most": made.limit, "digest": _hash(tensors)}
    files.write(path, to_safetensors(tensors, header))
    drop_older(path)


def _read_ballots(path: Path, key: str) -> Ballots:
    tensors, header = map_tensors(path)
    files.check_kind(header, BALLOTS, BALLOTS_VERSION, path)
    if header.get("of") != key or header.get("digest") != _hash(tensors):
        raise ArtifactError(f"{path} is damaged: its content does not match its header")
    return Ballots(limit=header["most"], **tensors)


def _hash(tensors: Mapping[str, npt.NDArray[Any]]) -> str:
    sha = hashlib.sha256()
    for name in sorted(tensors):
        sha.update(f"{name} {tensors[name].dtype.str} {tensors[name].shape} ".encode())
        sha.update(np.ascontiguousarray(tensors[name]).data)
    return sha.hexdigest()


# --- tokenizer and embedding

# A tokenizer takes twenty megabytes: routers of one process that have the same one, such as an old and a new, share it.
_tokenizers: WeakValueDictionary[str, Tokenizer] = WeakValueDictionary()
_tokenizers_lock = threading.Lock()


def _load_tokenizer(folder: Path, part: Header) -> Tokenizer:
    proof = Proof(**part["fast_engine"]) if part["fast_engine"] else None
    cache = None
    with suppress(ArtifactError):  # only a shortcut: without it the fast engine compiles the tokenizer again
        cache = read_part(folder, part["fast_file"]) if part["fast_file"] else None
    packed = read_part(folder, part["file"])  # checked now, decompressed when it is needed
    with _tokenizers_lock:
        if (known := _tokenizers.get(key := repr((part, cache is None)))) is not None:
            return known
        definition = partial(unpack_gzip, packed, str(folder / part["file"]["name"]))
        made = Tokenizer(definition, proof=proof, fast_cache=cache, unknown_id=part["unknown_id"])
        _tokenizers[key] = made
        return made


def _load_embedding(folder: Path, header: Header) -> Embedding:
    with name_damage(folder):
        refuse_serving(folder, header)
        part = header["embedding"]
        if "file" not in part:
            embedding = _load_default_embedding(folder, part)
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


def _load_default_embedding(folder: Path, part: Header) -> Embedding:
    """The version of the default embedding that a header names; one of ir3de 0.1 is recognised by its fingerprint."""
    version = part.get("default_version", find_version(part["fingerprint"]))
    try:
        if version is None:
            raise EmbeddingError(f"no default embedding of this ir3de has the fingerprint {part['fingerprint'][:12]}")
        return Embedding.default(version)
    except EmbeddingError as error:
        raise MismatchError(f"the router at {folder} can route, but not change: {error}") from error


# --- what only changes need


def _restore_domains(
    folder: Path, header: Header, embedding: Callable[[], Embedding]
) -> tuple[DomainTraining, Probabilities]:
    """The training of a router from domains; its files are read when they are first used."""
    calibration = header["calibration"]
    training = DomainTraining(
        SCORERS.restore(header["scorer"]),
        lru_cache(maxsize=1)(partial(_read_statistics, folder, header)),
        lru_cache(maxsize=1)(partial(_read_holdings, folder, header)),
        tuple(header["trials"]),
        header.get("chosen_by", "tuning" if header.get("tuned", header["trials"]) else "caller"),
        header.get("reason", ""),
        _restore_windows(header),
        lru_cache(maxsize=1)(partial(_read_background, folder, header, embedding)),
        encoded=restore_vectors(folder, header),
        teaching=Teaching(**header["teaching"]) if "teaching" in header else None,
    )
    assumed = header.get("assumed_calibration")  # earlier versions had none
    return training, Probabilities(
        None if calibration is None else Calibration(**calibration),
        assumed=None if assumed is None else AssumedCalibration(**assumed),
    )


def _restore_windows(header: Header) -> dict[str, int]:
    """The windows that experts were counted in before tuning chose others."""
    experts, trials = header["experts"], header["trials"]
    if "tuned" in header or not trials:
        return {expert["name"]: expert["window"] for expert in experts if "window" in expert}
    # A header of version 0.1 does not record them, but most of its trials used those windows.
    counted = Counter(trial.get("window") for trial in trials).most_common(1)[0][0]
    (chosen,) = [trial.get("window") for trial in trials if trial["chosen"]]
    return {} if counted is None or chosen == counted else {expert["name"]: counted for expert in experts}


def _read_statistics_file(folder: Path, part: Part) -> Statistics:
    return read_statistics(read_part(folder, part), folder / part["name"])[0]


def _read_statistics(folder: Path, header: Header) -> dict[str, Statistics]:
    with name_damage(folder):
        refuse_serving(folder, header)
        found = {}
        for expert in header["experts"]:
            own = found[expert["name"]] = _read_statistics_file(folder, expert["statistics"])
            if "gram" in expert:
                remember(own, partial(_read_gram, folder, expert["gram"], own.digest))
        return found


def _read_gram(folder: Path, part: Part, digest: str) -> Gram | None:
    """A Gram matrix is derived: a file that is missing, damaged or of other statistics counts as absent."""
    with suppress(ArtifactError, KeyError, TypeError):
        tensors, header = map_tensors(checked_path(folder, part), sha256=part["sha256"])
        files.check_kind(header, GRAM, GRAM_VERSION, folder / part["name"])
        if header["of"] == digest:
            return Gram(tensors["packed"], header["made_by"])
    return None


def _read_background(folder: Path, header: Header, embedding: Callable[[], Embedding]) -> Statistics | None:
    with name_damage(folder):
        refuse_serving(folder, header)
        if (part := header.get("background")) is None:
            return None
        if "file" in part:
            return _read_statistics_file(folder, part["file"])
        digest = part["digest"]
    found = count_built_in(embedding())  # an error here does not mean that the header is damaged
    if found.digest != digest:
        raise MismatchError(
            f"the router at {folder} was fitted with the background of another version of ir3de: it can route, "
            "but not change. Fit it again with this version"
        )
    return found


def _read_holdings(folder: Path, header: Header) -> dict[str, Holding]:
    with name_damage(folder):
        refuse_serving(folder, header)
        found = {}
        for expert in header["experts"]:
            if "contributions" in expert:
                own = _read_statistics_file(folder, expert["own"]) if expert.get("own") is not None else None
                given = tuple(restore_contribution(one, folder) for one in expert["contributions"])
                found[expert["name"]] = Holding(own, given)
        return found


def _restore_outcomes(folder: Path, header: Header) -> tuple[OutcomeTraining, ExpectedScores]:
    """The training of a router from outcomes; the sums are read when they are first used."""
    described = header["outcomes"]
    expectation, validation = restore_expectation(described, header["scorer"], len(header["experts"]))
    validation = replace(validation, reason=header.get("reason", ""))  # earlier versions gave none, and had no guard
    guard = bool(described.get("guard", True))
    read = lru_cache(maxsize=1)(partial(_read_outcomes, folder, header))
    given = bool(described["default_given"])
    training = OutcomeTraining(
        expectation.shrinkage, read, validation, given, guard, held=_restore_held(folder, header)
    )
    return training, ExpectedScores(expectation)


def _restore_held(folder: Path, header: Header) -> dict[str, Holding]:
    """The scores of answered requests that the experts have."""
    given = {one["name"]: one["contributions"] for one in header["experts"] if "contributions" in one}
    return {name: Holding(None, tuple(restore_contribution(one, folder) for one in own)) for name, own in given.items()}


def _read_outcomes(folder: Path, header: Header) -> Outcomes:
    with name_damage(folder):
        refuse_serving(folder, header)
        file, models = header["outcomes"]["file"], [expert["name"] for expert in header["experts"]]
        found = outcomes_from(read_part(folder, file), folder / file["name"])
        checked = check_outcomes(found, header["embedding"]["fingerprint"], models, folder)
        return add_held(checked, _restore_held(folder, header))
