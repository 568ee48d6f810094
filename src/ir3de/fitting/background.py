"""The background: prompts that belong to no domain, with which a router's own prompts are compared."""

from __future__ import annotations

from collections.abc import Iterable

from ir3de.corpora import background
from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.statistics.counting import collect
from ir3de.statistics.domain import Statistics

_built_in: dict[str, Statistics] = {}  # by the embedding's fingerprint


def count_background(given: Iterable[str] | Statistics | None, embedding: Embedding) -> Statistics:
    """The statistics of a background: of the one that is built in, unless texts or statistics are given."""
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
        raise InputError(
            "a background needs at least two prompts, which belong to none of the domains, found "
            f"{len(found.sample)}: give it more, or leave it out for the built-in one"
        )
    return found.histogram_only()


def count_built_in(embedding: Embedding) -> Statistics:
    """The statistics of the background that is built in, counted once for each embedding."""
    if embedding.fingerprint not in _built_in:
        texts = background.prompts()
        _built_in[embedding.fingerprint] = collect(texts, embedding=embedding, prompt_sums=False, keep_sample=True)
    return _built_in[embedding.fingerprint]
