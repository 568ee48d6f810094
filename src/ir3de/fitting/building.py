"""What a router is built with: names checked, domains counted, a fit compiled."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ir3de.embedding import Embedding
from ir3de.engines.domains import Files
from ir3de.engines.engine import Counting
from ir3de.errors import InputError, MismatchError, UnknownExpertError, name_embedding
from ir3de.fitting.parts import RouterParts
from ir3de.outcomes.sums import Outcomes
from ir3de.routing.decision import Compiled, Terms
from ir3de.scorers import Blend, Scorer
from ir3de.scorers.table import Table
from ir3de.selectors import Average, Selector
from ir3de.statistics.contributions import Contribution, Holding
from ir3de.statistics.counting import Recipe, collect, recount
from ir3de.statistics.domain import Statistics
from ir3de.statistics.sample import Sample

if TYPE_CHECKING:  # a process that only routes never pays for it
    from ir3de.tuning import Trial
    from ir3de.tuning.choosing import ConfidenceModel

BATCH_CHARACTERS = 500_000


def fitted(
    statistics: Mapping[str, Statistics],
    embedding: Embedding,
    scorer: Scorer,
    terms: Terms,
) -> RouterParts:
    """Fit, calibrate and compile."""
    from ir3de.tuning.choosing import calibrate

    confidence = calibrate(list(statistics.values()), embedding, scorer, terms.selector)
    return _compiled(statistics, embedding, scorer, terms, confidence, ())


def fit_tuned(
    statistics: Mapping[str, Statistics], embedding: Embedding, terms: Terms, *, windows: bool = True
) -> tuple[RouterParts, tuple[Trial, ...]]:
    """Choose scorer, selector and, if `windows` allows it, the window size; fit and compile. Also returns the trials.

    The statistics must be those that were counted: the result depends on nothing else.
    """
    from ir3de.tuning.choosing import choose

    choice = choose(list(statistics.values()), embedding, cap=terms.selector.cap, windows=windows)
    terms = replace(terms, selector=choice.selector)
    tried = [trial.to_dict() for trial in choice.trials]
    chosen = dict(zip(statistics, choice.domains, strict=True))
    sizes = {
        name: own.sums.window
        for name, own in statistics.items()
        if own.sums is not None and own.sums != chosen[name].sums
    }
    parts = _compiled(chosen, embedding, choice.scorer, terms, choice.confidence, tried)
    return replace(parts, is_tuned=True, windows=sizes), choice.trials


def counted_statistics(parts: RouterParts) -> Mapping[str, Statistics]:
    """Each expert's statistics as they were counted, before tuning counted the prompts again in other windows."""
    found = dict(parts.statistics())
    for name, window in parts.windows.items():
        sample = found[name].sample
        again = None if sample is None else recount(sample, parts.embedding(), window)
        if again is not None and again.tokens == found[name].tokens:  # tuning did so only where every prompt is kept
            found[name] = again
    return found


def _compiled(
    statistics: Mapping[str, Statistics],
    embedding: Embedding,
    scorer: Scorer,
    terms: Terms,
    confidence: ConfidenceModel,
    trials: Sequence[Mapping[str, Any]],
) -> RouterParts:
    # even where there is none: one learnt with other experts would tell of them after they are gone
    terms = replace(terms, calibration=confidence.calibration, familiarity=confidence.familiarity)
    table = Table.of(
        scorer,
        list(statistics.values()),
        embedding.rows,
        log_offset=terms.selector.log_offset,
        familiarity=terms.familiarity is not None,
        unknown=embedding.tokenizer.unknown_id,
    )
    compiled, owned = Compiled.build(terms, table), dict(statistics)
    return RouterParts(
        compiled,
        embedding.tokenizer,
        scorer,
        embedding.fingerprint,
        lambda: embedding,
        lambda: owned,
        tuple(trials),
    )


def with_holdings(parts: RouterParts, holdings: Mapping[str, Holding]) -> RouterParts:
    """The parts with what their experts were given; experts without a contribution need no word of it."""
    held = {
        name: holdings[name] for name in parts.compiled.experts if name in holdings and holdings[name].contributions
    }
    return replace(parts, holdings=lambda: held)


def parted(domain: Any) -> tuple[list[Statistics], list[Contribution]] | None:
    """The statistics and the contributions that a domain consists of; None when it is something else."""
    given = list(domain) if isinstance(domain, (list, tuple)) and domain else [domain]
    if not all(isinstance(one, (Statistics, Contribution)) for one in given):
        return None
    statistics = [one for one in given if isinstance(one, Statistics)]
    return statistics, [one for one in given if isinstance(one, Contribution)]


def summed(name: str, contributions: Sequence[Contribution], embedding: Embedding) -> Statistics:
    """The sum of contributions, read a few at a time, on every core."""
    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="ir3de-sum") as pool:
        parts = pool.map(partial(_share, name, contributions, embedding), _shares(len(contributions)))
        return sum(parts)  # type: ignore[return-value]


def _shares(number: int) -> list[range]:
    workers = min(os.cpu_count() or 1, number)
    return [range(worker, number, workers) for worker in range(workers)]


def _share(name: str, contributions: Sequence[Contribution], embedding: Embedding, places: range) -> Statistics:
    """The sum of those at these places; their samples are drawn from together, several at a time."""
    total: Any = 0

    def samples() -> Iterator[Sample]:
        nonlocal total
        for place in places:
            found = counted(name, contributions[place].statistics(), embedding, keep_sample=True)
            total = total + found.without_sample()
            if found.sample is not None:
                yield found.sample

    sample = Sample.together(samples())
    whole: Statistics = replace(total, sample=sample if len(sample) else None)
    return whole


def strategies(scorer: Scorer | None, selector: Selector | None) -> tuple[Scorer, Selector]:
    """Those that were given, the usual ones otherwise; refuses what is neither."""
    chosen = scorer or Blend(), selector or Average()
    for given, kind, usual in zip(chosen, (Scorer, Selector), (Blend(), Average()), strict=True):
        if not isinstance(given, kind):
            raise InputError(f"{kind.__name__.lower()} must be an object such as {usual}, found {given!r}")
    return chosen


def place(default: str, experts: Sequence[str]) -> int:
    """Where the default expert stands among the experts."""
    if default not in experts:
        raise UnknownExpertError(f"the default expert '{default}' is not among {', '.join(experts)}")
    return experts.index(default)


def default_for(domains: Mapping[str, Any]) -> Embedding:
    """The version of the default embedding that given statistics were collected with, otherwise the current one."""
    for domain in domains.values():
        statistics, contributions = parted(domain) or ([], [])
        for one in (*statistics, *(contribution.statistics() for contribution in contributions[:1])):
            if one.embedding_version is not None:
                return Embedding.default(one.embedding_version)
    return Embedding.default()


def embedding_mismatch(what: str, found: Statistics | Outcomes, embedding: Embedding) -> MismatchError:
    """The error that statistics or outcomes are of another embedding than the router."""
    other = name_embedding(found.fingerprint, found.embedding_version)
    own = f"{name_embedding(embedding.fingerprint, embedding.default_version)} ({embedding.name})"
    advice = "collect them again with that embedding"
    if found.embedding_version is not None:
        advice += f", or fit the router with Embedding.default(version={found.embedding_version})"
    return MismatchError(f"{what} belong to {other}, the router uses {own}: {advice}")


def counted(
    name: str,
    domain: Any,
    embedding: Embedding,
    *,
    keep_sample: bool,
    window: int = 128,
    counting: Counting | None = None,
) -> Statistics:
    """An expert's statistics, from its texts or files, or from what was counted of them elsewhere."""
    if isinstance(domain, Statistics):
        if domain.fingerprint != embedding.fingerprint:
            raise embedding_mismatch(f"the statistics of '{name}'", domain, embedding)
        sizes = domain.histogram.size, embedding.width if domain.sums is None else domain.sums.width
        if sizes != (embedding.vocabulary_size, embedding.width):
            raise MismatchError(
                f"the statistics of '{name}' are of {sizes[0]:,} tokens and {sizes[1]:,} columns, the embedding has "
                f"{embedding.vocabulary_size:,} and {embedding.width:,}: they are damaged. Collect them again"
            )
        statistics = domain if keep_sample else domain.without_sample()
    elif isinstance(domain, Files):
        statistics = _counted_files(name, domain, embedding, Recipe(window, keep_sample=keep_sample), counting or {})
    elif isinstance(domain, str) or not isinstance(domain, Iterable):
        raise InputError(
            f"the texts of '{name}' must be an iterable of str, Files or Statistics, found {type(domain).__name__}"
        )
    else:
        statistics = collect(domain, embedding=embedding, window=window, keep_sample=keep_sample)
    if statistics.tokens == 0:
        raise InputError(f"expert '{name}' has no text: give it at least one prompt of its domain")
    return statistics


def _counted_files(name: str, domain: Files, embedding: Embedding, recipe: Recipe, counting: Counting) -> Statistics:
    from ir3de.engines import collect_files

    collected = collect_files(domain, name=name, embedding=embedding, recipe=recipe, **counting)
    if collected.skipped:
        warnings.warn(
            f"'{name}': {collected.skipped:,} of {collected.records:,} records could not be read and were skipped: "
            + "; ".join(collected.examples),
            stacklevel=2,
        )
    return collected.statistics


def prompts_of(name: str, texts: Iterable[str]) -> Iterator[str]:
    """An expert's prompts one by one; what is no prompt is refused, and says which it is."""
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        found = "one string: put it in a list" if isinstance(texts, str) else type(texts).__name__
        raise InputError(f"the prompts of '{name}' must be an iterable of str, found {found}")
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise InputError(f"prompt {number:,} of '{name}' is {type(text).__name__}, not str: {text!r:.60}")
        yield text


def checked(name: object) -> str:
    """Refuse what cannot be an expert's name."""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"an expert's name must be a non-empty string, found {name!r}")
    if any(ord(character) < 32 for character in name):
        raise InputError(f"an expert's name must not hold control characters, found {name!r}")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InputError(f"an expert's name must not hold half of a surrogate pair, found {name!r}")
    return name


def chunks(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    """The texts in stretches that are worth a thread each."""
    begin = characters = 0
    for index, text in enumerate(texts):
        characters += len(text) if isinstance(text, str) else 0
        if characters >= BATCH_CHARACTERS:
            yield texts[begin : index + 1]
            begin, characters = index + 1, 0
    if begin < len(texts):
        yield texts[begin:]
