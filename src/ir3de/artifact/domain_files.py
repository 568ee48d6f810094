"""What a router from domains adds to its folder: each expert's statistics and contributions, and how it was tuned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ir3de.artifact.damage import name_damage, refuse_serving
from ir3de.artifact.grams import attach_gram, describe_grams
from ir3de.artifact.part_files import ExistingFile, Parts, read_part
from ir3de.embedding import Embedding
from ir3de.errors import MismatchError
from ir3de.fitting.domain_training import DomainTraining
from ir3de.fitting.inputs import count_built_in
from ir3de.fitting.parts import RouterParts
from ir3de.policies import AssumedCalibration, Calibration
from ir3de.routing.valuation import Probabilities, Valuation
from ir3de.scorers.registry import SCORERS
from ir3de.statistics.contributions import Holding, describe_contribution, restore_contribution
from ir3de.statistics.domain import Statistics
from ir3de.statistics.files import encode_statistics, read_statistics


def describe_domains(
    router: RouterParts, training: DomainTraining, experts: list[dict[str, Any]], parts: Parts, *, serving: bool
) -> dict[str, Any]:
    """The header's fields of this kind of router; what each expert has is added to `experts`."""
    if not serving:
        statistics, holdings = training.statistics(), training.holdings()
        for expert in experts:
            name = expert["name"]
            expert |= _describe_statistics(statistics[name], parts)
            expert |= {"window": training.windows[name]} if name in training.windows else {}
            expert |= _describe_holding(holdings[name], parts) if name in holdings else {}
        describe_grams(experts, statistics, training.scorer, router.embedding().width, parts)
    return {
        "background": None if serving else _describe_background(training, router.embedding(), parts),
        "scorer": SCORERS.describe(training.scorer),
        "trials": list(training.trials),
        "tuned": training.chosen_by == "tuning",
        "chosen_by": training.chosen_by,
        "reason": training.reason,
        **_describe_assumed(router.compiled.rules.valuation),
    }


def _describe_assumed(valuation: Valuation) -> dict[str, Any]:
    """What stands in for a calibration, where anything does."""
    assumed = valuation.assumed if isinstance(valuation, Probabilities) else None
    return {} if assumed is None else {"assumed_calibration": asdict(assumed)}


def _describe_background(training: DomainTraining, embedding: Embedding, parts: Parts) -> dict[str, Any] | None:
    """The background's digest, and its file where it is not the one that is built in."""
    found = training.background()
    if found is None:
        return None
    if found == count_built_in(embedding):
        return {"digest": found.digest}
    return {"digest": found.digest, "file": parts.add("background", ".safetensors", encode_statistics(found))}


def _describe_statistics(own: Statistics, parts: Parts) -> dict[str, Any]:
    sources = 0 if own.sample is None else own.sample.count_sources()
    return {
        "prompts": own.prompts,
        "tokens": own.tokens,
        "kept": 0 if own.sample is None else len(own.sample),
        **({"sources": sources} if sources else {}),
        "digest": own.digest,
        "statistics": parts.add("statistics", ".safetensors", encode_statistics(own)),
    }


def _describe_holding(holding: Holding, parts: Parts) -> dict[str, Any]:
    """What an expert was given, and by whom."""
    given = []
    for one in holding.contributions:
        file = parts.add("contribution", ".stats", ExistingFile(one.sha256, one.content, one.origin))
        given.append(describe_contribution(one, file))
    own = holding.own
    described = {} if own is None else {"own": parts.add("statistics", ".safetensors", encode_statistics(own))}
    return {**described, "contributions": given}


def restore_domains(
    folder: Path, header: Mapping[str, Any], embedding: Callable[[], Embedding]
) -> tuple[DomainTraining, Probabilities]:
    """What a header says of the domains; the files are read when they are first asked for."""
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
    )
    assumed = header.get("assumed_calibration")  # earlier versions had none
    return training, Probabilities(
        None if calibration is None else Calibration(**calibration),
        assumed=None if assumed is None else AssumedCalibration(**assumed),
    )


def _restore_windows(header: Mapping[str, Any]) -> dict[str, int]:
    """The windows that experts were counted in before tuning chose others."""
    experts, trials = header["experts"], header["trials"]
    if "tuned" in header or not trials:
        return {expert["name"]: expert["window"] for expert in experts if "window" in expert}
    # A header of version 0.1 does not say so, but most of its trials used those windows.
    counted = Counter(trial.get("window") for trial in trials).most_common(1)[0][0]
    (chosen,) = [trial.get("window") for trial in trials if trial["chosen"]]
    return {} if counted is None or chosen == counted else {expert["name"]: counted for expert in experts}


def _read_statistics(folder: Path, header: Mapping[str, Any]) -> dict[str, Statistics]:
    with name_damage(folder):
        refuse_serving(folder, header)
        found = {}
        for expert in header["experts"]:
            file = expert["statistics"]
            found[expert["name"]] = read_statistics(read_part(folder, file), folder / file["name"])[0]
            attach_gram(folder, expert, found[expert["name"]])
        return found


def _read_background(folder: Path, header: Mapping[str, Any], embedding: Callable[[], Embedding]) -> Statistics | None:
    with name_damage(folder):
        refuse_serving(folder, header)
        if (part := header.get("background")) is None:
            return None
        if "file" in part:
            return read_statistics(read_part(folder, part["file"]), folder / part["file"]["name"])[0]
        digest = part["digest"]
    found = count_built_in(embedding())  # what goes wrong here is no damage of the header
    if found.digest != digest:
        raise MismatchError(
            f"the router at {folder} was fitted with the background of another version of ir3de: it can route, "
            "but not change. Fit it again with this version"
        )
    return found


def _read_holdings(folder: Path, header: Mapping[str, Any]) -> dict[str, Holding]:
    with name_damage(folder):
        refuse_serving(folder, header)
        found = {}
        for expert in header["experts"]:
            if "contributions" in expert:
                file = expert.get("own")
                own = None if file is None else read_statistics(read_part(folder, file), folder / file["name"])[0]
                given = tuple(restore_contribution(one, folder) for one in expert["contributions"])
                found[expert["name"]] = Holding(own, given)
        return found
