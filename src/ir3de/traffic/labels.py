"""Labels of requests, read from a journal: which prompt belongs to which expert, by whose word."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from ir3de.router import Router
from ir3de.routing.decision import Decision
from ir3de.routing.messages import count_content
from ir3de.statistics.contributions import Contribution
from ir3de.statistics.counting import count, count_ids, count_unordered_ids
from ir3de.statistics.domain import Statistics
from ir3de.statistics.sample import FULL_TRUST, TAUGHT
from ir3de.traffic.journal import Journal
from ir3de.traffic.records import Ids, JournalPrompt, Keep, TrafficRecord
from ir3de.traffic.selection import Selection
from ir3de.traffic.sources import Source, clean_name, find_day

MIN_TURN_TOKENS = 8  # of a turn that stands on its own, where only its token ids are kept
MAX_EXAMPLE_CHARS = 120
HELD_OUT_PARTS = 5  # one of them is held out for the proof
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True, eq=False)
class Label:
    """One author's label of one request."""

    source: Source
    request: str  # its id
    time: float  # of the request
    expert: str
    keep: Keep
    ids: Ids
    text: str | None = None  # None unless the text was kept

    @cached_property
    def content(self) -> str:
        """Equal for copies of a prompt, however they are kept."""
        return hashlib.sha256(np.sort(self.ids).astype("<u4").tobytes()).hexdigest()

    @property
    def is_held_out(self) -> bool:
        """Whether the proof holds this prompt out: its content alone decides. Order is needed to route it."""
        return self.has_order and is_content_held_out(self)

    @property
    def has_order(self) -> bool:
        """Whether the prompt can be routed again."""
        return self.keep != "statistics"

    @cached_property
    def words(self) -> str:
        """Equal for prompts of the same words, whatever their case, order and punctuation."""
        if self.text is None:
            return str(np.unique(self.ids).tolist())
        return " ".join(sorted(set(_WORDS.findall(self.text.casefold())))) or self.text


def is_content_held_out(label: Label) -> bool:
    """Whether a proof holds prompts of this content out."""
    return int(label.content[:8], 16) % HELD_OUT_PARTS == 0


@dataclass
class LeftOut:
    """Feedback that cannot be learnt, by reason."""

    unknown_experts: Counter[str] = field(default_factory=Counter)
    no_prompt: int = 0  # it was not kept, or no longer
    no_tokens: int = 0  # the prompt is empty
    other_tokenizer: int = 0  # ids that the router's tokenizer does not have

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "unknown_experts": dict(sorted(self.unknown_experts.items()))}


def read_labels(journal: Journal, router: Router) -> tuple[list[Label], LeftOut]:
    """The labels in a journal that the router can learn, by source and time, and what is left out."""
    found: list[Label] = []
    left_out, known = LeftOut(), frozenset(router.experts)
    for record in journal.read(Selection(has_feedback=True)):
        given = [(one, one.expert) for one in record.feedback if one.expert is not None]
        left_out.unknown_experts.update(name for _, name in given if name not in known)
        wanted = [(one, name) for one, name in given if name in known]
        prompt = read_prompt(record, router, left_out, len(wanted)) if wanted else None
        if prompt is None:
            continue
        for one, name in wanted:
            source = Source(clean_name(one.author), clean_name(record.key), find_day(one.time))
            found.append(replace(prompt, source=source, expert=name))
    return sorted(found, key=lambda one: (one.source, one.time, one.request, one.expert)), left_out


def read_unlabelled(journal: Journal, router: Router) -> list[str]:
    """The prompts in a journal without a label, each in the form in which a label would be about it.

    Of prompts that were kept as tokens, the text is decoded. Those without order have none.
    """
    found: list[str] = []
    for record in journal.read():
        text = None if any(one.expert is not None for one in record.feedback) else read_text(record, router)
        if text is not None:
            found.append(text)
    return found


def read_text(record: TrafficRecord, router: Router) -> str | None:
    """The text that a label of the request would be about; None if the order of its tokens was not kept."""
    kept = record.prompt
    if kept is None or kept.keep == "statistics":
        return None
    text, ids = _choose_turn(kept, router)
    if not len(ids) or int(ids.max()) >= router.embedding.vocabulary_size:
        return None
    return router.tokenizer.decode_batch([ids])[0] if text is None else text


def read_prompt(record: TrafficRecord, router: Router, left_out: LeftOut, labels: int) -> Label | None:
    """The request as a label without source and expert; None, and counted, if nothing can be learnt from it."""
    kept = record.prompt
    if kept is None:
        left_out.no_prompt += labels
        return None
    text, ids = _choose_turn(kept, router)
    if not len(ids):
        left_out.no_tokens += labels
    elif int(ids.max()) >= router.embedding.vocabulary_size:
        left_out.other_tokenizer += labels
    else:
        return Label(Source("", "", ""), record.id, record.time, "", kept.keep, ids, text)
    return None


def _choose_turn(kept: JournalPrompt, router: Router) -> tuple[str | None, Ids]:
    """What the label is about: the last turn that stands on its own, else all turns together."""
    if kept.keep == "text":
        alone = [turn for turn in kept.turns if count_content(turn)]
        text = alone[-1] if alone else "\n".join(kept.turns)
        return text, np.asarray(router.tokenizer.encode(text), np.uint32)
    long_enough = [turn for turn in kept.ids if len(turn) >= MIN_TURN_TOKENS]
    whole = np.concatenate([np.zeros(0, np.uint32), *kept.ids])
    return None, long_enough[-1] if long_enough else whole


def route_labels(router: Router, labels: Sequence[Label]) -> list[Decision]:
    """The router's decisions on prompts whose order is known, without an encoder."""
    return router.route_ids([one.ids for one in labels])


def make_contribution(labels: Sequence[Label], router: Router) -> Contribution:
    """The labels of one source for one expert as a contribution; prompts come along unless only counts were kept."""
    first, expert = labels[0], labels[0].expert
    total = _count_labels(labels, router, expert)
    if first.source.is_taught and total.sample is not None:
        taught = np.full(len(total.sample), TAUGHT + FULL_TRUST, np.uint32)
        total = replace(total, sample=replace(total.sample, sources=taught))
    return Contribution.of(
        total,
        owner=f"feedback:{first.source.author}",
        id=first.source.make_id(expert),
        recipe=first.source.make_recipe(first.request),
    )


def _count_labels(labels: Sequence[Label], router: Router, expert: str) -> Statistics:
    embedding, recipe = router.embedding, router.recipe(expert)
    texts = [one.text for one in labels if one.text is not None]
    ordered = [one.ids for one in labels if one.keep == "tokens"]
    unordered = [one.ids for one in labels if not one.has_order]
    parts = [count(texts, embedding, recipe)] if texts else []
    parts += [count_ids(ordered, embedding, recipe)] if ordered else []
    if unordered:
        bare = count_unordered_ids(unordered, embedding, recipe.window)
        parts.append(bare if recipe.prompt_sums else bare.histogram_only())
    return sum(parts[1:], parts[0])


@dataclass(frozen=True)
class Contradiction:
    """Prompts of the same words that several people labelled differently."""

    prompt: str
    labels: dict[str, list[str]]  # authors by expert

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def find_contradictions(labels: Iterable[Label], router: Router) -> list[Contradiction]:
    """Where people contradict one another, the most contested prompts first."""
    groups: dict[str, list[Label]] = {}
    for one in labels:
        groups.setdefault(one.words, []).append(one)
    found = []
    for same in groups.values():
        authors: dict[str, set[str]] = {}
        for one in same:
            authors.setdefault(one.expert, set()).add(one.source.author)
        if len(authors) > 1 and len(set().union(*authors.values())) > 1:
            found.append(
                Contradiction(_show(same[0], router), {name: sorted(own) for name, own in sorted(authors.items())})
            )
    return sorted(found, key=lambda one: (-sum(map(len, one.labels.values())), one.prompt))


def _show(label: Label, router: Router) -> str:
    if not label.has_order:
        return "(only its counts were kept)"
    text = router.tokenizer.decode_batch([label.ids])[0] if label.text is None else label.text
    return " ".join(text.split())[:MAX_EXAMPLE_CHARS]
