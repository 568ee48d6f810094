"""A router out of its folder: the read side at once, what only changes need when it is first asked for."""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from ir3de.artifact.folder import HEADER, read_header, read_history
from ir3de.artifact.grams import attach_gram
from ir3de.artifact.mapping import map_ballots
from ir3de.artifact.part_files import checked_path, read_part
from ir3de.embedding import Embedding, Matrix, Proof, Tokenizer
from ir3de.embedding.defaults import find_version
from ir3de.errors import ArtifactError, EmbeddingError, MismatchError
from ir3de.fitting.parts import RouterParts
from ir3de.outcomes.files import RestoredOutcomes, check_outcomes, outcomes_from, restore_outcomes
from ir3de.outcomes.sums import Outcomes
from ir3de.policies import Calibration, Familiarity, Policy
from ir3de.routing.decision import Compiled, Terms
from ir3de.scorers import Scorer
from ir3de.scorers.registry import SCORERS
from ir3de.scorers.table import Table
from ir3de.selectors import SELECTORS, Selector
from ir3de.statistics.contributions import Holding, restore_contribution
from ir3de.statistics.domain import Statistics
from ir3de.statistics.files import statistics_from
from ir3de.storage import files
from ir3de.storage.tensors import map_tensors, read_tensors

_ATTEMPTS = 100  # to read a router that is being replaced all the time


def stamp(path: Path) -> tuple[int, int] | None:
    """Tells a file from the one that is renamed into its place."""
    with suppress(OSError):
        found = path.stat()
        return found.st_mtime_ns, found.st_ino
    return None


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
        scorer: Any = SCORERS.restore(header["scorer"]) if outcomes is None else outcomes.expectation.shrinkage
        selector = SELECTORS.restore(header["selector"])
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
            bool(header.get("tuned", header["trials"])),
            _windows(header),
            None if outcomes is None else outcomes.parts,
            lru_cache(maxsize=1)(partial(_holdings, folder, header)),
            lru_cache(maxsize=1)(partial(read_history, folder, header["sha256"])),
            saved=header["sha256"],
        )


def _rebuilt(
    header: Mapping[str, Any], scorer: Scorer, selector: Selector, domains: list[Statistics], embedding: Embedding
) -> Table:
    """The table that the file held, from the statistics."""
    familiarity, unknown = header["familiarity"] is not None, header["tokenizer"]["unknown_id"]
    return Table.of(
        scorer, domains, embedding.rows, log_offset=selector.log_offset, familiarity=familiarity, unknown=unknown
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


def _windows(header: Mapping[str, Any]) -> dict[str, int]:
    """The windows that experts were counted in before tuning chose others."""
    experts, trials = header["experts"], header["trials"]
    if "tuned" in header or not trials:
        return {expert["name"]: expert["window"] for expert in experts if "window" in expert}
    # A header of version 0.1 does not say so, but most of its trials used those windows.
    tried = Counter(trial.get("window") for trial in trials)
    counted = tried.most_common(1)[0][0]
    (chosen,) = [trial.get("window") for trial in trials if trial["chosen"]]
    return {} if counted is None or chosen == counted else {expert["name"]: counted for expert in experts}


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
    return Table(**{_EARLIER_NAMES.get(name, name): tensor for name, tensor in tensors.items()})


_EARLIER_NAMES = {"usualness": "familiarity"}  # of a table's tensors in version 0.1


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
            embedding = _default_embedding(folder, part)
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


def _default_embedding(folder: Path, part: Mapping[str, Any]) -> Embedding:
    """The version of the default embedding that a header names; one of ir3de 0.1 is recognised by its fingerprint."""
    version = part.get("default_version", find_version(part["fingerprint"]))
    try:
        if version is None:
            raise EmbeddingError(f"no default embedding of this ir3de has the fingerprint {part['fingerprint'][:12]}")
        return Embedding.default(version)
    except EmbeddingError as error:
        raise MismatchError(f"the router at {folder} can route, but not change: {error}") from error


def _all_statistics(folder: Path, header: Mapping[str, Any]) -> dict[str, Statistics]:
    with _damage_named(folder):
        _refuse_serving(folder, header)
        found = {}
        for expert in header["experts"]:
            file = expert["statistics"]
            found[expert["name"]] = statistics_from(read_part(folder, file), folder / file["name"])
            attach_gram(folder, expert, found[expert["name"]])
        return found


def _holdings(folder: Path, header: Mapping[str, Any]) -> dict[str, Holding]:
    with _damage_named(folder):
        _refuse_serving(folder, header)
        found = {}
        for expert in header["experts"]:
            if "contributions" in expert:
                file = expert.get("own")
                own = None if file is None else statistics_from(read_part(folder, file), folder / file["name"])
                given = tuple(restore_contribution(one, folder) for one in expert["contributions"])
                found[expert["name"]] = Holding(own, given)
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
