"""Descriptions of experts: a few words that stand for prompts where there are few of them, or none.

A description by itself is unlike any prompt, and a fit would learn just that. So it is counted as 20 prompts: each is
one of `CARRIERS`, prompts about all sorts of things, with the description after it. What they have in common, and
prompts of other experts do not, are the words of the description.

These prompts add up like all others, and go when their expert goes. They are never in the kept sample, because
confidence must be measured on real prompts. The expert's name plays no part: a renamed expert routes as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ir3de.embedding import Embedding
from ir3de.errors import InputError, UnknownExpertError
from ir3de.storage.ledger import Change

# from the example prompts, four of each domain; statistics depend on them, so they must not change
CARRIERS = (
    "Explain tail call optimization and which popular languages really have it.",
    "docker compose: service A starts before postgres is ready and crashes. depends_on doesn't help?",
    "Give me a Dijkstra implementation in Python using heapq, with comments on why stale entries in the queue are "
    "fine.",
    "What would you log, and at what level, in a background job that retries three times before giving up?",
    "A cone has slant height 13 and base radius 5. Volume and total surface area, please.",
    "Use Lagrange multipliers to maximise xyz subject to x + y + z = 12 with all variables positive.",
    "Solve for x: 5^{2x} - 6 \\cdot 5^{x} + 5 = 0.",
    "In a class of 30 students, what's the probability that at least two share a birthday? Ignore leap years and walk "
    "me through the complement.",
    "I was stopped by police and they asked to look in my bag. Did I have to say yes?",
    "I'm on a student visa and got offered a part-time job of 25 hours a week. What should I check before I accept?",
    'Please check this privacy notice sentence: "We may share your data with trusted partners for any purpose." What '
    "is wrong with it?",
    "Give me an overview of the differences between common law and civil law systems in the way judges treat "
    "precedent.",
    "What are the red flags in low back pain that call for urgent imaging?",
    "What does an eGFR of 52 mean for a 70-year-old who takes naproxen for back pain?",
    "Paracetamol overdose: why can somebody feel fine for the first day?",
    "Help me plan questions for my oncologist before starting chemotherapy, especially on fertility, infection risk "
    "and working through treatment.",
    "What do bog bodies tell us about Iron Age Europe?",
    "How was the Suez Crisis a turning point for British power?",
    "How did the oil shock of 1973 change Western economies?",
    "Assess the claim that the New Deal ended the Great Depression.",
)


@dataclass(frozen=True)
class DescribedDomain:
    """What an expert is given, and the words that describe it."""

    domain: Any
    description: str


def describe_domain(name: str, domain: Any, description: str | None) -> Any:
    """The domain with its description, if it has one."""
    return domain if description is None else DescribedDomain(domain, check_description(name, description))


def describe_domains(domains: Mapping[str, Any], descriptions: Mapping[str, str] | None) -> dict[str, Any]:
    """The domains with their descriptions; refuses descriptions that are empty or of no expert."""
    if descriptions is not None and not isinstance(descriptions, Mapping):
        raise InputError(f"descriptions must map experts' names to text, found {type(descriptions).__name__}")
    described = descriptions or {}
    check_described(described, domains)
    return {name: describe_domain(name, domain, described.get(name)) for name, domain in domains.items()}


def check_described(descriptions: Mapping[str, str], experts: Collection[str]) -> None:
    """Refuse a description of an expert that is not among these."""
    for name in descriptions:
        if name not in experts:
            raise UnknownExpertError(
                f"'{name}' is described, but is not among the experts {', '.join(experts) or '(none)'}: correct the "
                "name, or name it as an expert too, if need be without texts"
            )


def check_description(name: str, description: object) -> str:
    """Refuse what is no description."""
    if not isinstance(description, str) or not description.strip():
        raise InputError(
            f"the description of '{name}' must be a few words, such as 'contracts, courts, tenancy', found "
            f"{description!r:.60}"
        )
    return description


def write_prompts(name: str, description: str, embedding: Embedding) -> list[str]:
    """The prompts that a description is counted as; refuses one of which the tokenizer knows no token."""
    words = description.strip()
    if not np.any(embedding.encode(words) != embedding.tokenizer.unknown_id):
        raise InputError(
            f"the description of '{name}' has no token that the embedding {embedding.name} knows: {description!r:.60}. "
            "Describe it in other words"
        )
    return [f"{carrier} {words}" for carrier in CARRIERS]


def count_described(changes: Iterable[Change]) -> Counter[str]:
    """How many prompts of each expert stand for its descriptions, from all that was done to a router."""
    found = Counter[str]()
    for change in changes:
        if change.expert is not None and change.action == "remove" and change.after is None:
            found[change.expert] = 0
        elif change.expert is not None and change.given is not None and change.given.is_description:
            found[change.expert] += change.given.prompts
    return found
