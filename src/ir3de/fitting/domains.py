"""What experts are given: arguments are checked, texts counted, contributions summed, changes recorded."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any, Literal, TypeAlias

from ir3de.embedding import Embedding
from ir3de.engines.engine import Counting, check_counting
from ir3de.engines.shards import Files
from ir3de.errors import InputError, MismatchError, UnknownExpertError, name_embedding, name_some
from ir3de.files.atomic import count_cores
from ir3de.files.ledger import DESCRIPTION, Action, Change, ContributionRecord
from ir3de.fitting.inputs import DescribedDomain, write_prompts
from ir3de.policies import Policy, check_policy
from ir3de.routing.rules import DecisionRules
from ir3de.scorers import Blend, Scorer
from ir3de.scorers.ridge import keep_gram
from ir3de.scorers.table import check_experts
from ir3de.selectors import Average, Selector
from ir3de.statistics.contributions import Contribution, Holding
from ir3de.statistics.counting import Recipe, collect
from ir3de.statistics.defaults import DEFAULT_WINDOW
from ir3de.statistics.domain import Statistics
from ir3de.statistics.outcomes import Outcomes
from ir3de.statistics.sample import Sample
from ir3de.statistics.texts import refuse_table

CHOOSE_AGAIN = 'scorer="choose" (--scorer choose on the command line)'

Counted: TypeAlias = "Statistics | Contribution"
OutcomeRows: TypeAlias = "Iterable[Mapping[str, Any]] | Outcomes"  # rows, or their sums
# an expert's texts (str, or rows of `text` and `source`), or statistics of them; for an outcome router, rows of scores
Domain: TypeAlias = "Iterable[str | Mapping[str, Any]] | Files | Counted | Sequence[Counted] | OutcomeRows"
ScorerChoice = Literal["keep", "choose"]  # what a change does with the scorer


@dataclass(frozen=True)
class Gift:
    """What a change gives an expert, and how it is counted."""

    name: str
    domain: Domain
    keep_sample: bool | None = None  # None: as the router does with its other texts
    counting: Counting = field(default_factory=Counting)

    def check_new(self, experts: Collection[str]) -> None:
        """Raise an error if the name is invalid, or if an expert has it already."""
        if (name := check_name(self.name)) in experts:
            raise InputError(
                f"'{name}' is an expert already: merge(name, texts) gives it more, remove(name) takes it out"
            )


@dataclass(frozen=True)
class Addition:
    """What an expert receives at once: texts and a description counted here, and contributions."""

    own: Statistics | None
    contributions: Sequence[Contribution]
    total: Statistics
    entries: Sequence[ContributionRecord]  # for the ledger

    @classmethod
    def of_texts(cls, counted: Statistics) -> Addition:
        return cls(counted, (), counted, [describe_given(counted)])

    def __add__(self, other: Addition) -> Addition:
        contributions, entries = (*self.contributions, *other.contributions), (*self.entries, *other.entries)
        return Addition(add_statistics(self.own, other.own), contributions, self.total + other.total, entries)


@dataclass(frozen=True)
class Amendment:
    """All statistics and contributions of the experts after a change, and its entries in the ledger."""

    statistics: Mapping[str, Statistics]
    holdings: Mapping[str, Holding]
    entries: Sequence[Change]

    @classmethod
    def count(
        cls, domains: Mapping[str, Domain], embedding: Embedding, *, keep_sample: bool, counting: Counting
    ) -> Amendment:
        """The domains of a new router."""
        check_counting(counting)
        statistics, holdings, entries = {}, {}, []
        for name, domain in domains.items():
            options: dict[str, Any] = {"keep_sample": keep_sample, "counting": counting, "among": len(domains)}
            count = partial(count_domain, name, embedding=embedding, **options)
            given = read_addition(name, domain, count, embedding, keep_sample=keep_sample)
            statistics[name] = given.total
            holdings[name] = Holding(given.own, ()).with_more(given.contributions, name)
            after = given.total.digest
            entries += [Change.now("fit", expert=name, given=one, after=after) for one in given.entries]
        return cls(statistics, holdings, entries)

    def give(self, gift: Gift, recipe: Recipe, embedding: Embedding) -> Amendment:
        """Add an expert, or give an existing one more; `recipe` is how its texts are counted."""
        check_counting(gift.counting)
        name, known = gift.name, self.statistics.get(gift.name)
        holding = self.holdings.get(name, Holding(known, ()))
        keep_sample = recipe.keep_sample if gift.keep_sample is None else gift.keep_sample
        options: dict[str, Any] = {"keep_sample": keep_sample, "window": recipe.window, "counting": gift.counting}
        count = partial(count_domain, name, embedding=embedding, **options)
        keeps_samples = gift.keep_sample is not False
        given = read_addition(name, gift.domain, count, embedding, keep_sample=keeps_samples, holding=holding)
        own = add_statistics(holding.own, given.own)
        holding = Holding(own, holding.contributions).with_more(given.contributions, name)
        total = given.total if known is None else known + given.total
        action: Action = "add" if known is None else "merge"
        before, after = None if known is None else known.digest, total.digest
        changes = [Change.now(action, expert=name, given=one, before=before, after=after) for one in given.entries]
        return Amendment({**self.statistics, name: total}, {**self.holdings, name: holding}, [*self.entries, *changes])

    def remove_experts(self, names: Sequence[str]) -> Amendment:
        """Remove experts. Each of their contributions has an entry of its own, for its owner."""
        left, entries = dict(self.statistics), []
        for name in names:
            gone, holding = left.pop(name), self.holdings.get(name, Holding(None, ()))
            given = [*(one.given for one in holding.contributions), describe_given(gone)]
            entries += [Change.now("remove", expert=name, given=one, before=gone.digest) for one in given]
        return Amendment(left, self.holdings, entries)

    def remove_parts(self, name: str, contributions: Iterable[str]) -> Amendment:
        """Remove contributions: the difference of integers is the sum of the others. Their sample is drawn again."""
        if name not in self.holdings:
            raise InputError(f"'{name}' has no contributions: its texts were counted here, as one")
        left, before = self.holdings[name], self.statistics[name]
        now, keeps_sample, entries = before.without_sample(), True, list(self.entries)
        for one in contributions:
            gone, left = left.without(one, name)
            rest, keeps_sample = now - gone.statistics().without_sample(), keeps_sample and not gone.kept
            how: Any = {"expert": name, "given": gone.given, "before": now.digest, "after": rest.digest}
            entries.append(Change.now("remove", **how))
            now = rest
        after = replace(now, sample=before.sample if keeps_sample else left.sample())
        return Amendment({**self.statistics, name: after}, {**self.holdings, name: left}, entries)

    def remove_taught(self) -> Amendment:
        """Remove every contribution that a teacher labelled."""
        found = [(name, [one.id for one in own.contributions if one.is_taught]) for name, own in self.holdings.items()]
        return reduce(lambda now, one: now.remove_parts(*one) if one[1] else now, found, self)


def add_statistics(*parts: Statistics | None) -> Statistics | None:
    """The sum of those that are not None."""
    found = [part for part in parts if part is not None]
    return sum(found[1:], found[0]) if found else None


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
    """What a domain gives an expert. Raises an error before reading if the expert has it already.

    `count` turns texts, files or statistics into the expert's own. Contributions bring their samples of prompts along
    unless `keep_sample` is false.
    """
    if isinstance(domain, DescribedDomain):
        words = count(write_prompts(name, domain.description, embedding))
        words = words if words.sample is None else replace(words, sample=Sample.empty())  # prompts must be real there
        described = Addition(words, (), words, [replace(describe_given(words), kind=DESCRIPTION)])
        if isinstance(domain.domain, Sized) and not len(domain.domain):
            return described
        return described + read_addition(
            name, domain.domain, count, embedding, keep_sample=keep_sample, holding=holding
        )
    given = _split_counted(domain)
    if given is None:
        return Addition.of_texts(count(domain))
    statistics, contributions = given
    (holding or Holding(None, ())).with_more(contributions, name)
    kept = contributions if keep_sample else [one.without_sample() for one in contributions]
    own = add_statistics(*map(count, statistics))
    if not kept:
        assert own is not None
        return Addition.of_texts(own)
    theirs = Addition(None, kept, _sum_contributions(name, kept, embedding), [one.given for one in kept])
    return theirs if own is None else Addition.of_texts(own) + theirs


def _split_counted(domain: Any) -> tuple[list[Statistics], list[Contribution]] | None:
    """The statistics and the contributions that a domain consists of; None if it is something else."""
    given = list(domain) if isinstance(domain, (list, tuple)) and domain else [domain]
    if not all(isinstance(one, (Statistics, Contribution)) for one in given):
        return None
    statistics = [one for one in given if isinstance(one, Statistics)]
    return statistics, [one for one in given if isinstance(one, Contribution)]


def _sum_contributions(name: str, contributions: Sequence[Contribution], embedding: Embedding) -> Statistics:
    """The sum of contributions, read a few at a time, on every core."""
    workers = min(count_cores(), len(contributions))
    with ThreadPoolExecutor(workers, thread_name_prefix="ir3de-sum") as pool:
        parts = [contributions[worker::workers] for worker in range(workers)]
        return sum(pool.map(partial(_sum_some, name, embedding), parts))  # type: ignore[return-value]


def _sum_some(name: str, embedding: Embedding, contributions: Sequence[Contribution]) -> Statistics:
    """Their sum; their samples are joined a few at a time."""
    total: Any = 0

    def samples() -> Iterator[Sample]:
        nonlocal total
        for contribution in contributions:
            found = count_domain(name, contribution.statistics(), embedding, keep_sample=True)
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
    """Embedding, scorer and selector of a fit: as given, or the defaults. Without a scorer, the fit chooses one."""
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
    chooses = scorer is None and type(given[1]) is Average  # the choice compares scorers by their averages
    return check_embedding(embedding or find_embedding(domains)), None if chooses else given[0], given[1]


def check_strategies(scorer: Scorer | None, selector: Selector | None) -> tuple[Scorer, Selector]:
    """The given scorer and selector, or the usual ones."""
    chosen = scorer or Blend(), selector or Average()
    for given, kind, usual in zip(chosen, (Scorer, Selector), (Blend(), Average()), strict=True):
        if isinstance(given, type) or not isinstance(given, kind):  # a class has the methods, but not the numbers
            like = f"ir3de.{kind.__name__.lower()}s.{type(usual).__name__}()"
            raise InputError(f"{kind.__name__.lower()} must be an object such as {like}, found {given!r}")
    return chosen


def make_rules(names: Collection[str], selector: Selector, default: str | None, policy: Policy | None) -> DecisionRules:
    """The rules that decide between experts of these names. Checks names, default and policy."""
    experts = tuple(map(check_name, names))
    check_experts(len(experts))
    chosen = None if default is None else find_default(default, experts)
    return DecisionRules(experts, selector, chosen, policy=check_policy(policy or Policy(), experts))


def find_default(default: str, experts: Sequence[str]) -> int:
    """The index of the default expert."""
    if default not in experts:
        raise UnknownExpertError(f"the default expert '{default}' is not among {name_some(experts, default)}")
    return experts.index(default)


def check_embedding(embedding: object) -> Embedding:
    """Raise an error unless this is an embedding."""
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
    """The error for statistics or outcomes of another embedding than the router's."""
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
    window: int = DEFAULT_WINDOW,
    counting: Counting | None = None,
    among: int | None = None,
) -> Statistics:
    """An expert's statistics, from its texts or files, or from statistics of them; `among` so many of a new router."""
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
    if among is not None and statistics.sums is not None:  # the digest reads it first, then the fit
        keep_gram(statistics.sums, among)
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
    """Raise an error unless the first argument is a router; `call` shows a correct call."""
    if not hasattr(router, "require_probabilities"):
        raise InputError(f"the first argument must be a router, found a {type(router).__name__}: {call}")


def check_name(name: object) -> str:
    """Raise an error unless this can be an expert's name."""
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"an expert's name must be a non-empty string, found {name!r}")
    if any(ord(character) < 32 for character in name):
        raise InputError(f"an expert's name must not hold control characters, found {name!r}")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InputError(f"an expert's name must not hold half of a surrogate pair, found {name!r}")
    return name


def check_choice(scorer: object) -> None:
    """Raise an error unless a change can do this with the scorer."""
    if scorer not in ("keep", "choose"):
        raise InputError(f'scorer of a change must be "keep" or "choose", found {scorer!r}: `fit` takes other scorers')


def require_experts(names: Iterable[str], experts: Collection[str]) -> None:
    """Raise an error for names of unknown experts."""
    if unknown := [f"'{name}'" for name in names if name not in experts]:
        raise UnknownExpertError(f"no expert {name_some(unknown)}: this router has {name_some(experts, unknown[0])}")


def check_removal(given: Iterable[str], experts: Collection[str], contribution: str | None) -> tuple[str, ...]:
    """The names, each once. They must be known, leave an expert, and be one alone for a contribution."""
    names = tuple(dict.fromkeys(given))
    require_experts(names, experts)
    if contribution is None and len(names) == len(experts):
        raise InputError(f"'{names[-1]}' is the only expert left: a router needs at least one")
    if contribution is not None and len(names) > 1:
        raise InputError(f"a contribution is taken from one expert, found {', '.join(names)}")
    return names
