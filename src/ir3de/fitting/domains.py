"""What experts are given: names are checked, texts counted, contributions summed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ir3de.embedding import Embedding
from ir3de.engines.domains import Files
from ir3de.engines.engine import Counting
from ir3de.errors import InputError, MismatchError, UnknownExpertError, name_embedding, name_some
from ir3de.fitting.descriptions import DescribedDomain, write_prompts
from ir3de.outcomes.sums import Outcomes
from ir3de.policies import Policy, check_policy
from ir3de.routing.decision import DecisionRules
from ir3de.scorers import Blend, Scorer
from ir3de.scorers.table import check_experts
from ir3de.selectors import Average, Selector
from ir3de.statistics.contributions import Contribution, Holding
from ir3de.statistics.counting import Recipe, collect
from ir3de.statistics.domain import Statistics
from ir3de.statistics.sample import Sample
from ir3de.statistics.tables import refuse_table
from ir3de.storage.cores import count_cores
from ir3de.storage.ledger import DESCRIPTION, ContributionRecord

CHOOSE_AGAIN = 'scorer="choose" (--scorer choose on the command line)'


@dataclass(frozen=True)
class Addition:
    """What an expert is given at once: texts and a description counted here, and contributions."""

    own: Statistics | None
    contributions: Sequence[Contribution]
    total: Statistics
    entries: Sequence[ContributionRecord]  # what the ledger records of it

    def __add__(self, other: Addition) -> Addition:
        own = [one.own for one in (self, other) if one.own is not None]
        contributions, entries = (*self.contributions, *other.contributions), (*self.entries, *other.entries)
        return Addition(sum(own[1:], own[0]) if own else None, contributions, self.total + other.total, entries)


def describe_given(statistics: Statistics) -> ContributionRecord:
    """How the ledger records texts that were counted here."""
    return ContributionRecord(statistics.digest, statistics.prompts, statistics.tokens)


def read_addition(
    name: str,
    domain: Any,
    count: Callable[[Any], Statistics],
    embedding: Embedding,
    *,
    keep_sample: bool,
    holding: Holding | None = None,
) -> Addition:
    """What a domain gives an expert, refused before it is read if the expert has it already.

    `count` turns texts, files or statistics into the expert's own. Contributions bring their samples of prompts along
    unless `keep_sample` is false.
    """
    if isinstance(domain, DescribedDomain):
        described = _count_description(name, domain.description, count, embedding)
        if isinstance(domain.domain, Sized) and not len(domain.domain):
            return described
        return described + read_addition(
            name, domain.domain, count, embedding, keep_sample=keep_sample, holding=holding
        )
    given = _split_counted(domain)
    if given is None:
        texts = count(domain)
        return Addition(texts, (), texts, [describe_given(texts)])
    statistics, contributions = given
    (holding or Holding(None, ())).with_more(contributions, name)
    kept = contributions if keep_sample else [one.without_sample() for one in contributions]
    counted = [count(one) for one in statistics]
    own = sum(counted[1:], counted[0]) if counted else None
    if not kept:
        assert own is not None
        return Addition(own, (), own, [describe_given(own)])
    theirs = _sum_contributions(name, kept, embedding)
    entries = [*([] if own is None else [describe_given(own)]), *(one.given for one in kept)]
    return Addition(own, kept, theirs if own is None else own + theirs, entries)


def _count_description(
    name: str, description: str, count: Callable[[Any], Statistics], embedding: Embedding
) -> Addition:
    """What a description gives an expert; it is never in the kept sample."""
    words = count(write_prompts(name, description, embedding))
    words = words if words.sample is None else replace(words, sample=Sample.empty())
    return Addition(words, (), words, [replace(describe_given(words), kind=DESCRIPTION)])


def _split_counted(domain: Any) -> tuple[list[Statistics], list[Contribution]] | None:
    """The statistics and the contributions that a domain consists of; None when it is something else."""
    given = list(domain) if isinstance(domain, (list, tuple)) and domain else [domain]
    if not all(isinstance(one, (Statistics, Contribution)) for one in given):
        return None
    statistics = [one for one in given if isinstance(one, Statistics)]
    return statistics, [one for one in given if isinstance(one, Contribution)]


def _sum_contributions(name: str, contributions: Sequence[Contribution], embedding: Embedding) -> Statistics:
    """The sum of contributions, read a few at a time, on every core."""
    with ThreadPoolExecutor(count_cores(), thread_name_prefix="ir3de-sum") as pool:
        parts = pool.map(partial(_sum_some, name, contributions, embedding), _deal_out(len(contributions)))
        return sum(parts)  # type: ignore[return-value]


def _deal_out(number: int) -> list[range]:
    workers = min(count_cores(), number)
    return [range(worker, number, workers) for worker in range(workers)]


def _sum_some(name: str, contributions: Sequence[Contribution], embedding: Embedding, places: range) -> Statistics:
    """The sum of those at these places; their samples are drawn from together, several at a time."""
    total: Any = 0

    def samples() -> Iterator[Sample]:
        nonlocal total
        for place in places:
            found = count_domain(name, contributions[place].statistics(), embedding, keep_sample=True)
            total = total + found.without_sample()
            if found.sample is not None:
                yield found.sample

    sample = Sample.join(samples())
    whole: Statistics = replace(total, sample=sample if len(sample) else None)
    return whole


def check_request(
    domains: Mapping[str, Any],
    embedding: Embedding | None,
    scorer: Scorer | None,
    selector: Selector | None,
    *,
    tune: bool,
    keep_sample: bool,
) -> tuple[Embedding, Scorer | None, Selector]:
    """What a fit uses: as given, or the defaults. Arguments that contradict one another are refused.

    No scorer means that the fit chooses one.
    """
    if not isinstance(domains, Mapping):
        raise InputError(
            f"domains must map each expert's name to its texts, found {type(domains).__name__}: pass {{name: texts}}, "
            "or a table, rows or files with label="
        )
    if not domains:
        raise InputError("a router needs at least one expert: pass {name: texts}")
    if tune and not keep_sample:
        raise InputError("tune=True needs prompts to try things on, and keep_sample=False keeps none")
    if tune and (scorer is not None or selector is not None):
        raise InputError("tune=True chooses scorer and selector itself: leave them out, or leave out tune")
    given = check_strategies(scorer, selector)
    chooses = scorer is None and type(given[1]) is Average  # others read the table in another way than it is chosen for
    return check_embedding(embedding or find_embedding(domains)), None if chooses else given[0], given[1]


def check_strategies(scorer: Scorer | None, selector: Selector | None) -> tuple[Scorer, Selector]:
    """Those that were given, the usual ones otherwise; refuses what is neither."""
    chosen = scorer or Blend(), selector or Average()
    for given, kind, usual in zip(chosen, (Scorer, Selector), (Blend(), Average()), strict=True):
        if isinstance(given, type) or not isinstance(given, kind):  # a class has the methods, but not the numbers
            like = f"ir3de.{kind.__name__.lower()}s.{type(usual).__name__}()"
            raise InputError(f"{kind.__name__.lower()} must be an object such as {like}, found {given!r}")
    return chosen


def make_rules(names: Collection[str], selector: Selector, default: str | None, policy: Policy | None) -> DecisionRules:
    """How experts of these names are decided between; refuses names, defaults and policies that make no sense."""
    experts = tuple(map(check_name, names))
    check_experts(len(experts))
    chosen = None if default is None else find_default(default, experts)
    return DecisionRules(experts, selector, chosen, policy=check_policy(policy or Policy(), experts))


def find_default(default: str, experts: Sequence[str]) -> int:
    """Where the default expert stands among the experts."""
    if default not in experts:
        raise UnknownExpertError(f"the default expert '{default}' is not among {name_some(experts, default)}")
    return experts.index(default)


def check_embedding(embedding: object) -> Embedding:
    """Refuse what is no embedding."""
    if not isinstance(embedding, Embedding):
        raise InputError(f"embedding must be an Embedding, found {embedding!r}: use Embedding.load(source)")
    return embedding


def find_embedding(domains: Mapping[str, Any]) -> Embedding:
    """The version of the default embedding that given statistics were collected with, otherwise the current one."""
    for domain in domains.values():
        statistics, contributions = _split_counted(domain) or ([], [])
        for one in (*statistics, *(contribution.statistics() for contribution in contributions[:1])):
            if one.embedding_version is not None:
                return Embedding.default(one.embedding_version)
    return Embedding.default()


def describe_mismatch(what: str, found: Statistics | Outcomes, embedding: Embedding) -> MismatchError:
    """The error that statistics or outcomes are of another embedding than the router."""
    other = name_embedding(found.fingerprint, found.embedding_version)
    own = f"{name_embedding(embedding.fingerprint, embedding.default_version)} ({embedding.name})"
    advice = "collect them again with that embedding"
    if found.embedding_version is not None:
        advice += f", or fit the router with Embedding.default(version={found.embedding_version})"
    return MismatchError(f"{what} belong to {other}, the router uses {own}: {advice}")


def count_domain(
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
            raise describe_mismatch(f"the statistics of '{name}'", domain, embedding)
        sizes = domain.histogram.size, embedding.width if domain.sums is None else domain.sums.width
        if sizes != (embedding.vocabulary_size, embedding.width):
            raise MismatchError(
                f"the statistics of '{name}' are of {sizes[0]:,} tokens and {sizes[1]:,} columns, the embedding has "
                f"{embedding.vocabulary_size:,} and {embedding.width:,}: they are damaged. Collect them again"
            )
        statistics = domain if keep_sample else domain.without_sample()
    elif isinstance(domain, Files):
        statistics = _count_files(name, domain, embedding, Recipe(window, keep_sample=keep_sample), counting or {})
    elif isinstance(domain, (str, Mapping)) or not isinstance(domain, Iterable):
        raise InputError(
            f"the texts of '{name}' must be an iterable of str, Files or Statistics, found {type(domain).__name__}"
        )
    else:
        refuse_table(domain, f"the texts of '{name}'", ", or fit from the whole table with label=")
        try:
            statistics = collect(domain, embedding=embedding, window=window, keep_sample=keep_sample)
        except InputError as error:
            raise InputError(f"expert '{name}': {error}") from None
    if statistics.tokens == 0:
        raise InputError(f"expert '{name}' has no text: give it at least one prompt of its domain")
    return statistics


def _count_files(name: str, domain: Files, embedding: Embedding, recipe: Recipe, counting: Counting) -> Statistics:
    from ir3de.engines import collect_files

    collected = collect_files(domain, name=name, embedding=embedding, recipe=recipe, **counting)
    if collected.skipped:
        warnings.warn(
            f"'{name}': {collected.skipped:,} of {collected.records:,} records could not be read and were skipped: "
            + "; ".join(collected.examples),
            stacklevel=2,
        )
    return collected.statistics


def require_router(router: object, call: str) -> None:
    """Refuse what is no router where one must come first; `call` is the right one."""
    if not hasattr(router, "require_probabilities"):
        raise InputError(f"the first argument must be a router, found a {type(router).__name__}: {call}")


def check_name(name: object) -> str:
    """Refuse what cannot be an expert's name."""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"an expert's name must be a non-empty string, found {name!r}")
    if any(ord(character) < 32 for character in name):
        raise InputError(f"an expert's name must not hold control characters, found {name!r}")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InputError(f"an expert's name must not hold half of a surrogate pair, found {name!r}")
    return name


def check_choice(scorer: object) -> None:
    """Refuse what a change cannot do about the scorer."""
    if scorer not in ("keep", "choose"):
        raise InputError(f'scorer of a change must be "keep" or "choose", found {scorer!r}: `fit` takes other scorers')


def check_new(name: str, experts: Collection[str]) -> None:
    """Refuse a name that an expert has already, or that no expert can have."""
    if check_name(name) in experts:
        raise InputError(f"'{name}' is an expert already: merge(name, texts) gives it more, remove(name) takes it out")


def require_experts(names: Iterable[str], experts: Collection[str]) -> None:
    """Refuse names that no expert of a router has."""
    if unknown := [f"'{name}'" for name in names if name not in experts]:
        raise UnknownExpertError(f"no expert {name_some(unknown)}: this router has {name_some(experts, unknown[0])}")


def check_removal(given: Iterable[str], experts: Collection[str], contribution: str | None) -> tuple[str, ...]:
    """The names, each once; refuses unknown ones, to take all experts out, or a contribution from several of them."""
    names = tuple(dict.fromkeys(given))
    require_experts(names, experts)
    if contribution is None and len(names) == len(experts):
        raise InputError(f"'{names[-1]}' is the only expert left: a router needs at least one")
    if contribution is not None and len(names) > 1:
        raise InputError(f"a contribution is taken from one expert, found {', '.join(names)}")
    return names
