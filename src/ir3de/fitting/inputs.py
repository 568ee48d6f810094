"""The inputs of a fit: labelled data split into experts, descriptions of experts, and the background.

A description is a few words that stand for prompts where there are few of them, or none. By itself it is unlike any
prompt, and a fit would learn just that. So it is counted as 20 prompts: each is a carrier, a prompt about any subject,
with the description after it. Their common words, which prompts of other experts lack, are those of the description.
These prompts add up like all others, and go when their expert goes. They are never in the kept sample, because
confidence must be measured on real prompts. The expert's name plays no part: a renamed expert routes as before.

The background are prompts that belong to no domain. A router's own prompts are compared with them.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ir3de.corpora import background
from ir3de.embedding import Embedding
from ir3de.engines.engine import Counting
from ir3de.engines.shards import Files
from ir3de.errors import InputError, UnknownExpertError
from ir3de.files.atomic import find_kind
from ir3de.files.ledger import Change
from ir3de.statistics.counting import collect
from ir3de.statistics.domain import Statistics

if TYPE_CHECKING:
    from ir3de.fitting.lessons import Lesson


def split_by_label(
    given: Any, label: str | None, text: str | None, counting: Counting | None = None, labels: Any = None
) -> Any:
    """The experts with their texts: {expert: texts} as it is, everything else by its labels.

    A folder of experts stays on disk as `Files`; all other texts are held in memory. Up to `skip_bad` rows without a
    label are left out, with a warning.
    """
    if labels is not None:
        from ir3de.corpora.labels import join_labels

        given = join_labels(given, labels, label, text, "Router.fit(")
    if type(given) is dict and label is None and text is None:
        return given  # without importing what reads files and tables
    from ir3de.corpora.labelled import refuse_splits
    from ir3de.corpora.labels import advise_unlabelled, find_experts, is_pair, refuse_columns_by_name
    from ir3de.statistics.texts import is_frame

    refuse_splits(given)
    if isinstance(given, Mapping):
        refuse_columns_by_name(given, label, text)
        return given
    if label is None and isinstance(given, (str, Path)) and find_kind(given) == "folder":
        return {name: Files(paths, field=text) for name, paths in find_experts(given).items()}
    is_file = isinstance(given, (str, Path)) and find_kind(given) == "file"
    if label is None and not (is_file or is_frame(given) or is_pair(given)):
        if advice := advise_unlabelled(given):
            raise InputError(f"found a {type(given).__name__}, and no labels: {advice}")
        return given  # the check of the domains rejects it
    return read_by_label(given, label, text, counting or {}, stack_level=4)


def read_by_label(
    given: Any, label: str | None, text: str | None, how: Counting, *, stack_level: int = 3
) -> dict[str, list[str]]:
    """The texts of each expert of labelled data. Warns of likely mistakes, or raises an error.

    A warning names the line of the caller's caller; `stack_level` counts from here, as in `warnings.warn`.
    """
    from ir3de.corpora import read_labelled
    from ir3de.engines.shards import BadRecords

    if clash := [name for name in ("workers", "address", "checkpoint") if how.get(name) is not None]:
        raise InputError(f"{clash[0]}= needs {{name: Files(paths)}}: labelled texts are read here, into memory")
    bad = BadRecords(how.get("skip_bad", 0))
    found = read_labelled(given, label=label, text=text, on_damage=bad.add_error if bad.limit else None)
    if bad.skipped:
        records = bad.skipped + sum(map(len, found.values()))
        many = f"{bad.skipped:,} of {records:,} rows could not be used and were left out: "
        warnings.warn(many + "; ".join(bad.examples), stacklevel=stack_level)
    if len(found) == 1:
        name, texts = next(iter(found.items()))
        where = "" if label is None else f" in {label!r}"
        warnings.warn(
            f"all {len(texts):,} texts have the label {name!r}{where}: a router with only one expert sends it every "
            "prompt, and confidence has no meaning yet",
            stacklevel=stack_level,
        )
    _refuse_unique(given, found, label, text)
    return found


def _refuse_unique(given: Any, found: Mapping[str, list[str]], label: str | None, text: str | None) -> None:
    """Raise an error if nearly every row has a label of its own, and suggest the likely columns."""
    from ir3de.corpora.labelled import peek_rows
    from ir3de.corpora.labels import are_unique, describe_unique, find_likely_columns

    if not are_unique(found):
        return
    if label is None:  # (texts, labels)
        advice = "Give the texts first and the labels second."
    elif (meant := find_likely_columns(peek_rows(given), label)) is None:
        advice = "Name the column that groups the rows."
    else:
        column = meant.text or (label if text == meant.label else text)
        advice = f"Did you mean label={meant.label!r}" + (f", text={column!r}?" if column else "?")
    raise InputError(
        f"{describe_unique(found, label)}. {advice} If each row is meant to be an expert of its own, pass "
        "ir3de.corpora.read_labelled(data, label=…), which takes all labels"
    )


def prepare_lesson(unlabelled: Any, teacher: Any, answers: Any = None, descriptions: Any = None) -> Lesson | None:
    """What a teacher is to label; None without one. What is wrong is rejected before anything is counted."""
    if unlabelled is None and teacher is None and answers is None:
        return None
    from ir3de.fitting.lessons import check_lesson  # a fit without a teacher does not import it

    return check_lesson(unlabelled, teacher, answers, descriptions)


@dataclass(frozen=True)
class DescribedDomain:
    """An expert's domain, and the words that describe it."""

    domain: Any
    description: str


def describe_domain(name: str, domain: Any, description: str | None) -> Any:
    """The domain with its description, if it has one."""
    return domain if description is None else DescribedDomain(domain, check_description(name, description))


def describe_domains(domains: Mapping[str, Any], descriptions: Mapping[str, str] | None) -> dict[str, Any]:
    """The domains with their descriptions. Raises an error for those that are empty or of an unknown expert."""
    if descriptions is not None and not isinstance(descriptions, Mapping):
        raise InputError(f"descriptions must map experts' names to text, found {type(descriptions).__name__}")
    described = descriptions or {}
    check_described(described, domains)
    return {name: describe_domain(name, domain, described.get(name)) for name, domain in domains.items()}


def check_described(descriptions: Mapping[str, str], experts: Collection[str]) -> None:
    """Raise an error for a description of an expert that is not among these."""
    if unknown := [name for name in descriptions if name not in experts]:
        raise UnknownExpertError(
            f"'{unknown[0]}' is described, but is not among the experts {', '.join(experts) or '(none)'}: correct the "
            "name, or name it as an expert too, if need be without texts"
        )


def check_description(name: str, description: object) -> str:
    """Raise an error unless this is a description."""
    if not isinstance(description, str) or not description.strip():
        like = "a few words, such as 'contracts, courts, tenancy'"
        raise InputError(f"the description of '{name}' must be {like}, found {description!r:.60}")
    return description


def list_carriers() -> list[str]:
    """Four example prompts of each domain. Statistics depend on them, so they must not change."""
    return Path(__file__).with_name("carriers.txt").read_text(encoding="utf-8").splitlines()


def write_prompts(name: str, description: str, embedding: Embedding) -> list[str]:
    """The prompts that a description is counted as. It must have a token that the tokenizer knows."""
    words = description.strip()
    if not np.any(embedding.encode(words) != embedding.tokenizer.unknown_id):
        raise InputError(
            f"the description of '{name}' has no token that the embedding {embedding.name} knows: {description!r:.60}. "
            "Describe it in other words"
        )
    return [f"{carrier} {words}" for carrier in list_carriers()]


def count_described(changes: Iterable[Change]) -> Counter[str]:
    """How many prompts of each expert stand for its descriptions, from all changes of a router."""
    found = Counter[str]()
    for change in changes:
        if change.expert is not None and change.action == "remove" and change.after is None:
            found[change.expert] = 0
        elif change.expert is not None and change.given is not None and change.given.is_description:
            found[change.expert] += change.given.prompts
    return found


_built_in: dict[str, Statistics] = {}  # by the embedding's fingerprint


def count_background(given: Iterable[str] | Statistics | None, embedding: Embedding) -> Statistics:
    """The statistics of a background: the built-in one, unless texts or statistics are given."""
    if given is None:
        return count_built_in(embedding)
    if isinstance(given, Statistics):
        found = given
    elif isinstance(given, str) or not isinstance(given, Iterable):
        raise InputError(f"a background must be an iterable of str, or Statistics, found {type(given).__name__}")
    else:
        found = collect(given, embedding=embedding, prompt_sums=False, keep_sample=True)
    if found.fingerprint != embedding.fingerprint:
        raise InputError("the background was collected with another embedding than the router's: collect it again")
    if found.sample is None:
        raise InputError(
            "the background's statistics keep no prompts: collect them again with a sample (keep_sample=True, "
            "`ir3de collect --keep-sample`), or give its texts"
        )
    if len(found.sample) < 2:
        few = f"found {len(found.sample)}: give it more, or leave it out for the built-in one"
        raise InputError(f"a background needs at least two prompts, which belong to none of the domains, {few}")
    return found.histogram_only()


def count_built_in(embedding: Embedding) -> Statistics:
    """The statistics of the built-in background, counted once for each embedding."""
    if (name := embedding.fingerprint) not in _built_in:
        _built_in[name] = collect(background.prompts(), embedding=embedding, prompt_sums=False, keep_sample=True)
    return _built_in[name]
