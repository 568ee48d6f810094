"""What a router from outcomes adds to its folder: the sums of the scores, and how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ir3de.artifact.damage import name_damage, refuse_serving
from ir3de.artifact.part_files import Parts, read_part
from ir3de.fitting.outcomes import OutcomeTraining
from ir3de.fitting.parts import RouterParts
from ir3de.routing.valuation import ExpectedScores
from ir3de.scorers.expectation import describe_expectation, describe_shrinkage, restore_expectation
from ir3de.statistics.files import check_outcomes, outcomes_bytes, outcomes_from
from ir3de.statistics.outcomes import Outcomes


def describe_outcomes(
    router: RouterParts, training: OutcomeTraining, experts: list[dict[str, Any]], parts: Parts, *, serving: bool
) -> dict[str, Any]:
    """The header's fields of this kind of router; how many scores each model has is added to `experts`."""
    valuation = router.compiled.rules.valuation
    assert isinstance(valuation, ExpectedScores)
    described = describe_expectation(valuation.expectation, training.validation)
    described |= {"default_given": training.default_given, "guard": training.guard}
    if not serving:
        sums = training.outcomes()
        for expert in experts:
            expert["prompts"] = sums.rows(expert["name"])
        described["file"] = parts.add("outcomes", ".safetensors", outcomes_bytes(sums))
    scorer, reason = describe_shrinkage(training.scorer), training.validation.reason
    return {"scorer": scorer, "trials": [], "tuned": False, "reason": reason, "outcomes": described}


def restore_outcomes(folder: Path, header: Mapping[str, Any]) -> tuple[OutcomeTraining, ExpectedScores]:
    """What a header says of the outcomes; the sums are read when they are first asked for."""
    described = header["outcomes"]
    expectation, validation = restore_expectation(described, header["scorer"], len(header["experts"]))
    validation = replace(validation, reason=header.get("reason", ""))  # earlier versions gave none, and had no guard
    guard = bool(described.get("guard", True))
    read = lru_cache(maxsize=1)(partial(_read_outcomes, folder, header))
    training = OutcomeTraining(expectation.shrinkage, read, validation, bool(described["default_given"]), guard)
    return training, ExpectedScores(expectation)


def _read_outcomes(folder: Path, header: Mapping[str, Any]) -> Outcomes:
    with name_damage(folder):
        refuse_serving(folder, header)
        file, models = header["outcomes"]["file"], [expert["name"] for expert in header["experts"]]
        found = outcomes_from(read_part(folder, file), folder / file["name"])
        return check_outcomes(found, header["embedding"]["fingerprint"], models, folder)
