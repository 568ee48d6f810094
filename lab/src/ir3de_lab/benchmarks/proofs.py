"""How well a proof from the training prompts foretells the accuracy on test prompts, and what twice the prompts bring.

A router is fitted and proven on all training prompts, and then asked the test prompts. Another one is fitted and
proven on one half of them, chosen by a hash: its learning curve foretells what the other half brings.

A proof chooses the scorer once, on all prompts. What that is worth is seen beside folds in which everything is fitted
and chosen anew, from nothing but the prompts outside the fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from time import process_time
from typing import Any

from ir3de import Router
from ir3de.evaluation import Estimate, Proof, prove
from ir3de_lab.benchmarks.defaults import Material, Texts
from ir3de_lab.benchmarks.protocol import prompt_hash

FOLDS = 5  # as many as a proof deals prompts out to


@dataclass(frozen=True)
class ProofRow:
    """What was foretold of one set of intents, and what came. Seconds are of one core's work."""

    data: str
    experts: int
    prompts: int
    held_out: int
    folds: int
    foretold: Estimate
    test: Estimate
    chosen_anew: float  # cross-validated, the scorer chosen in every fold
    tfidf_foretold: float | None
    tfidf_test: float | None
    abstained_foretold: float
    abstained_test: float
    doubling_foretold: Estimate | None  # from one half of the prompts
    doubling: float  # what the other half brought on the test prompts
    fit_s: float
    proof_s: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure_proof(material: Material) -> ProofRow:
    """Prove, then look at the test prompts."""
    begun = process_time()
    router = Router.fit(material.train)
    fitted = process_time()
    foretold = prove(router=router)
    proven = process_time()
    test = prove(router=router, held_out=material.splits["test"], curve=False)
    half = Router.fit(_halve(material.train))
    half_foretold = prove(router=half, contenders=False)
    half_test = prove(router=half, held_out=material.splits["test"], curve=False, contenders=False)
    return ProofRow(
        material.name,
        experts=len(router.experts),
        prompts=foretold.known,
        held_out=foretold.prompts,
        folds=foretold.folds,
        foretold=foretold.accuracy,
        test=test.accuracy,
        chosen_anew=_choose_anew(material.train),
        tfidf_foretold=_find_tfidf(foretold),
        tfidf_test=_find_tfidf(test),
        abstained_foretold=foretold.abstained.share.value,
        abstained_test=test.abstained.share.value,
        doubling_foretold=half_foretold.doubling,
        doubling=round(test.accuracy.value - half_test.accuracy.value, 6),
        fit_s=round(fitted - begun, 2),
        proof_s=round(proven - fitted, 2),
    )


def _choose_anew(texts: Mapping[str, list[str]]) -> float:
    """The cross-validated accuracy when every fold has a router that was fitted without it from the beginning."""
    right = asked = 0
    for fold in range(FOLDS):
        split = {name: _part(own, fold) for name, own in texts.items()}
        router = Router.fit({name: rest for name, (rest, _) in split.items()})
        for name, (_, held) in split.items():
            right += sum(decision.best == name for decision in router.route_batch(held))
            asked += len(held)
    return round(right / asked, 6)


def _part(texts: list[str], fold: int) -> tuple[list[str], list[str]]:
    """The texts outside a fold and in it, by their hashes: copies lie in one fold. Some are always left outside."""
    rest = [text for text in texts if prompt_hash(text) % FOLDS != fold]
    return (rest, [text for text in texts if prompt_hash(text) % FOLDS == fold]) if rest else (texts, [])


def _halve(texts: Mapping[str, list[str]]) -> Texts:
    """About one half of each expert's prompts, and at least one."""
    return {name: [text for text in own if prompt_hash(text) & 1] or own[:1] for name, own in texts.items()}


def _find_tfidf(proof: Proof) -> float | None:
    return next((one.accuracy.value for one in proof.contenders if one.name.startswith("TF-IDF")), None)
