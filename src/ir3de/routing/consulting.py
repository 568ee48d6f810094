"""Decisions with a second opinion: prompts of which the table is unsure are shown to a sentence encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de.policies import Costs
from ir3de.routing.decision import Decision, make_consulted
from ir3de.routing.rules import DecisionRules
from ir3de.routing.second_opinion import SecondOpinion, quantise
from ir3de.routing.valuation import AS_THEY_ARE

Encode = Callable[[list[str]], npt.NDArray[np.floating]]  # unit vectors (n, width) of texts


def is_unsure(decision: Decision, text: str, *, always: bool = False) -> bool:
    """Whether a prompt should be shown to the encoder: the table's confidence is low, or `always`.

    Prompts without content never are, and outcome routers have no encoder.
    """
    opinion = decision._rules.opinion
    if opinion is None or decision._reason in ("no known token", "no content"):
        return False
    if not always and max(decision._find_values()) * decision._find_share() >= opinion.certainty:
        return False
    return bool(text.strip())


def consult(
    decisions: Sequence[Decision],
    texts: Sequence[str],
    encode: Encode,
    weights: Costs | None = None,
    *,
    always: bool = False,
) -> list[Decision]:
    """The decisions of a router on these texts, where the unsure ones were shown to the encoder, all in one batch."""
    unsure = [place for place, text in enumerate(texts) if is_unsure(decisions[place], text, always=always)]
    made = list(decisions)
    if not unsure:
        return made
    rules, opinion = _get_rules(decisions[unsure[0]])
    vectors = quantise(encode([texts[place] for place in unsure]))
    rows = zip(unsure, opinion.score(vectors).tolist(), opinion.find_nearest(vectors).tolist(), strict=True)
    penalties = rules.penalties(weights)
    for place, logits, nearest in rows:
        made[place] = _revise(decisions[place], rules, opinion, logits, nearest, penalties)
    return made


def _get_rules(decision: Decision) -> tuple[DecisionRules, SecondOpinion]:
    rules = decision._rules
    assert rules.opinion is not None
    return rules, rules.opinion


def _revise(
    decision: Decision,
    rules: DecisionRules,
    opinion: SecondOpinion,
    logits: list[float],
    nearest: float,
    penalties: list[float] | None,
) -> Decision:
    values = decision._find_values()
    in_domain = opinion.find_in_domain(decision._in_domain, nearest, logits)
    tally: npt.NDArray[Any] = np.array(opinion.combine(values, logits))
    beside = decision._tally[len(rules.experts) :]  # the sum of token familiarities, where it was counted
    if len(beside):
        tally = np.concatenate((tally, beside))
    return make_consulted(rules, tally, decision._tokens, decision._counted, in_domain, penalties)


def list_opinions(table: Decision, consulted: Decision) -> tuple[list[float], list[float], list[float]]:
    """The probabilities of the experts by the table, by the encoder alone, and by both together."""
    _, opinion = _get_rules(table)
    values = table._find_values()
    ours = opinion.combine(values, [0.0] * len(values))
    weight = opinion.head_weight
    logits = [(both - own) / weight if weight else 0.0 for both, own in zip(consulted._tallies, ours, strict=True)]
    return values, AS_THEY_ARE.probabilities(logits, 1), consulted._find_values()
