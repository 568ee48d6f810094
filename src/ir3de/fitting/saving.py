"""Saving a router: what its header describes, and which files that takes. `files.router_folder` has the layout."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy.typing as npt

from ir3de import files
from ir3de.embedding import Embedding
from ir3de.embedding.fast_tokenizer import GZIP_LEVEL
from ir3de.embedding.readers import find_version
from ir3de.files.ledger import History, extend_history
from ir3de.files.router_folder import (
    Parts,
    StoredContent,
    check_destination,
    read_header,
    read_history,
    seal_header,
    write_header,
)
from ir3de.files.tensors import make_tensor_file, to_safetensors
from ir3de.fitting.domain_training import DomainTraining
from ir3de.fitting.inputs import count_built_in
from ir3de.fitting.opinion_files import describe_opinion
from ir3de.fitting.outcomes import OutcomeTraining
from ir3de.fitting.parts import RouterParts
from ir3de.policies import Membership, Policy
from ir3de.routing.valuation import ExpectedScores, Probabilities
from ir3de.scorers.expectation import describe_expectation, describe_shrinkage
from ir3de.scorers.registry import SCORERS
from ir3de.scorers.ridge import needs_remembered_grams, recall
from ir3de.scorers.table import Table
from ir3de.selectors import SELECTORS
from ir3de.statistics.contributions import Holding, describe_contribution
from ir3de.statistics.domain import Statistics
from ir3de.statistics.files import encode_statistics, outcomes_bytes

GRAM, GRAM_VERSION = "ir3de.gram", 1
SUBJECTS, SUBJECTS_VERSION = "ir3de.subjects", 1
SUBJECT_TENSORS = ("centre", "centroids", "sizes", "background")
Described = dict[str, Any]


def save_router(router: RouterParts, path: str | Path, *, serving: bool = False) -> tuple[Path, History]:
    """Write a router to a folder, replacing the router there in one step; the folder, and the router's history."""
    folder = check_destination(path, serving=serving)
    parts = Parts(folder)
    header = seal_header({"serving": serving, **_describe(router, parts, serving)})
    history = router.history()
    if not serving:
        history = extend_history(history, router.changes, header["sha256"], before=router.saved)
    with files.lock_folder(folder):  # another writer would delete files that no header names yet
        parts.write()
        write_header(folder, header, history)
        parts.drop_all_others()
    return folder, history


def save_policy(path: str | Path, policy: Policy, default: str | None) -> None:
    """Give the router in a folder another policy and default expert: only its header is written, in one step."""
    folder = Path(path).expanduser()
    with files.lock_folder(folder):
        header = read_header(folder)
        before = header.pop("sha256")
        changed = files.seal({**header, "policy": policy.to_dict(), "default": default})
        history: History = ()
        if not header["serving"]:
            history = extend_history(read_history(folder, before), (), changed["sha256"], before=before)
        write_header(folder, changed, history)


def _describe(router: RouterParts, parts: Parts, serving: bool) -> Described:
    compiled, tokenizer = router.compiled, router.tokenizer
    experts: list[Described] = [{"name": name} for name in compiled.experts]
    embedding: Described = {"fingerprint": router.fingerprint}
    if (version := find_version(router.fingerprint)) is not None:
        embedding["default_version"] = version
    if not serving:
        stored = router.embedding()
        embedding["name"] = stored.name
        if version is None:
            content = make_tensor_file(stored.stored.tensors, {"width": stored.width})
            embedding["file"] = parts.add("embedding", ".safetensors", content)
    describe_training: Any = _describe_outcomes if router.training.kind == "outcomes" else _describe_domains
    described = describe_training(router, router.training, experts, parts, serving=serving)
    proof, cache, rules = tokenizer.proof, tokenizer.fast_cache, compiled.rules
    return {
        "experts": experts,
        "default": None if compiled.default is None else compiled.experts[compiled.default],
        "selector": SELECTORS.describe(compiled.selector),
        "calibration": None if rules.calibration is None else rules.calibration.to_dict(),
        "familiarity": None if rules.familiarity is None else asdict(rules.familiarity),
        "membership": _describe_membership(rules.membership, parts),
        "policy": rules.policy.to_dict(),
        "embedding": embedding,
        "tokenizer": {
            "file": parts.add("tokenizer", ".json.gz", _compress(tokenizer.definition)),
            "unknown_id": tokenizer.unknown_id,
            "fast_engine": None if proof is None else proof.to_dict(),
            "fast_file": None if cache is None else parts.add("tokenizer", ".tkz.gz", cache),
        },
        "table": parts.add("table", ".safetensors", _encode_table(compiled.table)),
        **described,
    }


@lru_cache(maxsize=1)
def _compress(definition: bytes) -> bytes:
    """A tokenizer's definition as it is saved. Cached, because routers saved one after the other mostly share it."""
    return gzip.compress(definition, GZIP_LEVEL, mtime=0)


def _encode_table(table: Table) -> bytes:
    tensors: dict[str, npt.NDArray[Any] | None] = {
        "scores": table.scores,
        "vote": table.vote,
        "entropy": table.entropy,
        "rank": table.rank,
        "familiarity": table.familiarity,
        "pairs": table.pairs,
        "subjects": table.subjects,
    }
    stored = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    return to_safetensors(stored, {"kind": "ir3de.table", "version": 1})


def _describe_membership(membership: Membership | None, parts: Parts) -> Described | None:
    """Its numbers, and the file of its subjects where it has them."""
    if membership is None:
        return None
    described = {part.name: getattr(membership, part.name) for part in fields(membership) if part.name != "subjects"}
    if (subjects := membership.subjects) is None:
        return {name: value for name, value in described.items() if name not in ("nearness", "contrast")}
    tensors = {name: getattr(subjects, name) for name in SUBJECT_TENSORS}
    header = {"kind": SUBJECTS, "version": SUBJECTS_VERSION, "means": subjects.means, "spreads": subjects.spreads}
    return {**described, "subjects": parts.add("subjects", ".safetensors", make_tensor_file(tensors, header))}


# --- a router from domains


def _describe_domains(
    router: RouterParts, training: DomainTraining, experts: list[Described], parts: Parts, *, serving: bool
) -> Described:
    """The header's fields of this kind of router; the fields of each expert are added to `experts`."""
    if not serving:
        statistics, holdings = training.statistics(), training.holdings()
        for expert in experts:
            name = expert["name"]
            expert |= _describe_statistics(statistics[name], parts)
            expert |= {"window": training.windows[name]} if name in training.windows else {}
            expert |= _describe_holding(holdings[name], parts) if name in holdings else {}
        _describe_grams(experts, statistics, training.scorer, router.embedding().width, parts)
    valuation = router.compiled.rules.valuation
    assumed = valuation.assumed if isinstance(valuation, Probabilities) else None
    return {
        "background": None if serving else _describe_background(training, router.embedding(), parts),
        "scorer": SCORERS.describe(training.scorer),
        "trials": list(training.trials),
        "tuned": training.chosen_by == "tuning",
        "chosen_by": training.chosen_by,
        "reason": training.reason,
        **({} if assumed is None else {"assumed_calibration": assumed.to_dict()}),
        **describe_opinion(router.compiled.rules.opinion, None if serving else training.encoded, experts, parts),
        **({"teaching": teaching.to_dict()} if (teaching := training.teaching) and teaching.is_used else {}),
    }


def _describe_background(training: DomainTraining, embedding: Embedding, parts: Parts) -> Described | None:
    """The background's digest, and its file where it is not the one that is built in."""
    found = training.background()
    if found is None:
        return None
    if found == count_built_in(embedding):
        return {"digest": found.digest}
    return {"digest": found.digest, "file": parts.add("background", ".safetensors", encode_statistics(found))}


def _describe_statistics(own: Statistics, parts: Parts) -> Described:
    sources = 0 if own.sample is None else own.sample.count_sources()
    return {
        "prompts": own.prompts,
        "tokens": own.tokens,
        "kept": 0 if own.sample is None else len(own.sample),
        **({"sources": sources} if sources else {}),
        "digest": own.digest,
        "statistics": parts.add("statistics", ".safetensors", encode_statistics(own)),
    }


def _describe_holding(holding: Holding, parts: Parts) -> Described:
    """What an expert was given, and by whom."""
    given = []
    for one in holding.contributions:
        file = parts.add("contribution", ".stats", StoredContent(one.sha256, one.content, one.origin))
        given.append(describe_contribution(one, file))
    own = holding.own
    described = {} if own is None else {"own": parts.add("statistics", ".safetensors", encode_statistics(own))}
    return {**described, "contributions": given}


def _describe_grams(
    experts: list[Described], statistics: Mapping[str, Statistics], scorer: object, width: int, parts: Parts
) -> None:
    """Save the Gram matrices of the fit, so that a change in another process computes only what changed."""
    if not needs_remembered_grams(scorer, list(statistics.values()), width):
        return
    for expert in experts:
        owned = statistics[expert["name"]]
        if (gram := recall(owned)) is not None:
            header = {"kind": GRAM, "version": GRAM_VERSION, "of": owned.digest, "made_by": gram.made_by}
            expert["gram"] = parts.add("gram", ".safetensors", make_tensor_file({"packed": gram.packed}, header))


# --- a router from outcomes


def _describe_outcomes(
    router: RouterParts, training: OutcomeTraining, experts: list[Described], parts: Parts, *, serving: bool
) -> Described:
    """The header's fields of this kind of router; how many scores each model has is added to `experts`."""
    valuation = router.compiled.rules.valuation
    assert isinstance(valuation, ExpectedScores)
    described = describe_expectation(valuation.expectation, training.validation)
    described |= {"default_given": training.default_given, "guard": training.guard}
    if not serving:
        sums = training.outcomes().without_traffic()
        for expert in experts:
            expert["prompts"] = sums.rows(expert["name"])
            if (holding := training.held.get(expert["name"])) is not None:
                expert |= _describe_holding(holding, parts)
        described["file"] = parts.add("outcomes", ".safetensors", outcomes_bytes(sums))
    scorer, reason = describe_shrinkage(training.scorer), training.validation.reason
    return {"scorer": scorer, "trials": [], "tuned": False, "reason": reason, "outcomes": described}
