"""Held-out prompts: by them, and not by the test, it is chosen whether a domain's expert is its fine-tuned model.

They are training prompts that come without an answer, so that no expert has learnt from them. Each ends in one demand
that a program can check, of the kinds that the instruction benchmark has. Neither the prompts nor the demands are from
that benchmark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ir3de.corpora import text_of
from ir3de.errors import InputError
from ir3de_lab.experiments.material import Item, Material, item_id
from ir3de_lab.experiments.settings import Setting

AVERAGE, BASE = "average", "base"
MOST_PROMPTS = 400
DEMANDS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("Write without a single comma.", "punctuation:no_comma", {}),
    ("Write everything in small letters.", "change_case:english_lowercase", {}),
    ("Write everything in capital letters.", "change_case:english_capital", {}),
    ("Begin and end the whole answer with a double quotation mark.", "startend:quotation", {}),
    ("The last words must be: That is all I know.", "startend:end_checker", {"end_phrase": "That is all I know."}),
    (
        "Write 150 words or more.",
        "length_constraints:number_words",
        {"relation": "at least", "num_words": 150},
    ),
    (
        "Write less than 50 words.",
        "length_constraints:number_words",
        {"relation": "less than", "num_words": 50},
    ),
    (
        "Answer in exactly 4 bullet points, each on a line that begins with a star and a space.",
        "detectable_format:number_bullet_lists",
        {"num_bullets": 4},
    ),
    (
        "Mark at least 2 passages with a star on either side, *like these*.",
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
    ),
    ("Give the answer a title between double angle brackets, as in <<my title>>.", "detectable_format:title", {}),
    ("The whole answer must be one JSON object.", "detectable_format:json_format", {}),
    ("Add a postscript that begins with P.S.", "detectable_content:postscript", {"postscript_marker": "P.S."}),
    (
        "Use the word therefore at least twice.",
        "keywords:frequency",
        {"keyword": "therefore", "relation": "at least", "frequency": 2},
    ),
    (
        "Do not use the words very, also and important.",
        "keywords:forbidden_words",
        {"forbidden_words": ["very", "also", "important"]},
    ),
)


@dataclass(frozen=True)
class Choice:
    """Which model is a domain's expert, and the points in percent that each candidate had."""

    taken: str
    scores: Mapping[str, float]
    prompts: int

    def to_dict(self) -> dict[str, Any]:
        return {"taken": self.taken, "scores": dict(self.scores), "prompts": self.prompts}


def candidates(setting: Setting) -> tuple[str, ...]:
    """The models that are asked: for each domain to choose for its fine-tuned one, and the base model."""
    return (*setting.choose, BASE) if setting.choose else ()


def items(setting: Setting, material: Material) -> tuple[Item, ...]:
    """The held-out prompts of every domain to choose for."""
    made: list[Item] = []
    for domain in setting.choose:
        free = [text_of(row) for row in material.train[domain] if not row.get("answer") and "kwargs" not in row]
        if not free:
            raise InputError(
                f"no training prompt of '{domain}' is without an answer, so none is held out: give some, or name the "
                "domain's expert in [experts]"
            )
        chosen = sorted(dict.fromkeys(free), key=_hash)[:MOST_PROMPTS]
        for place, prompt in enumerate(chosen):
            demand, kind, given = DEMANDS[place % len(DEMANDS)]
            text = f"{prompt.rstrip()}\n\n{demand}"
            row = {"text": text, "instruction_id_list": [kind], "kwargs": [dict(given)]}
            made.append(Item(item_id(domain, place, text), domain, text, row))
    return tuple(made)


def choose(domain: str, given: tuple[Item, ...], answers: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Choice:
    """The candidate with more points on the domain's held-out prompts; where they are level, the fine-tuned one."""
    from ir3de_lab.experiments.judging import judge_all

    held = [item for item in given if item.domain == domain]
    scores = {}
    for name in (domain, BASE):
        verdicts = judge_all("ifeval", [item.row for item in held], [answers[name][item.id]["text"] for item in held])
        scores[name] = round(100 * sum(v.points for v in verdicts) / sum(v.of for v in verdicts), 2)
    return Choice(max(scores, key=lambda name: scores[name]), scores, len(held))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
