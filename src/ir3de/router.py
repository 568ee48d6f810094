"""`Router`: fit, add, remove, merge; route, explain. Reads never wait for a change."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ir3de.counting import collect
from ir3de.decisions import Compiled, Decision, Explanation, Terms, decide, decide_batch, explain
from ir3de.embeddings import Embedding, Tokenizer
from ir3de.errors import InputError, MismatchError, UnknownExpertError
from ir3de.policies import Calibration, Costs, Policy, check_policy
from ir3de.scorers import Blend, Scorer
from ir3de.selectors import Average, Selector
from ir3de.statistics import Statistics
from ir3de.storage import RouterParts, load_router, save_router
from ir3de.table import Table, check_experts
from ir3de.tuning import Reading, Trial, calibrate, choose

Domain: TypeAlias = "Iterable[str] | Statistics"  # an expert's texts, or what was counted from them

BATCH_CHARACTERS = 500_000
SHOUTED = 16  # characters from which a prompt all in capitals is read in small letters


class Router:
    """Sends each prompt to the expert whose domain it belongs to.

    >>> import ir3de
    >>> router = ir3de.Router.fit({
    ...     "maths": ["What is 12 times 7?", "Solve x + 3 = 10 for x."],
    ...     "law": ["Is this contract void?", "Can my landlord evict me?"],
    ... })
    >>> router.route("Solve 3x = 12.").expert
    'maths'
    >>> router.add("cooking", ["How long do I boil an egg?", "A recipe for bread, please."])
    >>> router.experts
    ('maths', 'law', 'cooking')
    >>> router.remove("cooking")
    >>> router.experts
    ('maths', 'law')
    """

    def __init__(self, parts: RouterParts) -> None:
        """Put a router together from its parts; `Router.fit` and `Router.load` are the ways users have."""
        self._parts = parts
        self._compiled = parts.compiled  # apart from the rest, for `route`'s sake
        self._encode = parts.tokenizer.encode
        self._unknown = parts.tokenizer.unknown_id
        self._change = threading.Lock()

    # building ---------------------------------------------------------------------------------------------------

    @classmethod
    def fit(
        cls,
        domains: Mapping[str, Domain],
        *,
        embedding: Embedding | None = None,
        scorer: Scorer | None = None,
        selector: Selector | None = None,
        default: str | None = None,
        policy: Policy | None = None,
        tune: bool = False,
        keep_sample: bool = True,
    ) -> Router:
        """Fit a router from each expert's texts, or from statistics collected elsewhere.

        `tune=True` chooses scorer and selector on held-out prompts and needs a second or two more; otherwise they are
        `Blend` and `Average`. The paper's are `TokenRidge.paper()` and `EntropyTopK(k)`. `default` names the
        expert for prompts the router abstains on; otherwise the first. `policy` says what experts cost.

        A sample of up to 1,024 prompts an expert is kept, as token ids, to calibrate confidence and to tune again
        when experts come and go; it is saved with the router, but never in a serving copy. `keep_sample=False` keeps
        none: then there is no tuning, and confidence is not calibrated.
        """
        if not isinstance(domains, Mapping):
            raise InputError(f"domains must map each expert's name to its texts, found {type(domains).__name__}")
        if not domains:
            raise InputError("a router needs at least one expert: pass {name: texts}")
        chosen = embedding or Embedding.default()
        if tune and (scorer is not None or selector is not None):
            raise InputError("tune=True chooses scorer and selector itself: leave them out, or leave out tune")
        scorer, selector = scorer or Blend(), selector or Average()
        for given, kind, usual in ((scorer, Scorer, Blend()), (selector, Selector, Average())):
            if not isinstance(given, kind):
                raise InputError(f"{kind.__name__.lower()} must be an object such as {usual}, found {given!r}")
        if not isinstance(chosen, Embedding):
            raise InputError(f"embedding must be an Embedding, found {chosen!r}: use Embedding.load(source)")
        check_experts(len(domains))  # before anything is counted
        statistics = {
            _checked(name): _counted(name, domain, chosen, keep_sample=keep_sample) for name, domain in domains.items()
        }
        experts = tuple(statistics)
        terms = Terms(
            experts,
            selector,
            0 if default is None else _place(default, experts),
            policy=check_policy(policy or Policy(), experts),
        )
        if not tune:
            return cls(_fitted(statistics, chosen, scorer, terms))
        return cls(_tuned(statistics, chosen, terms)[0])

    def add(self, name: str, domain: Domain, *, keep_sample: bool | None = None) -> None:
        """Add an expert from its texts or statistics. Nothing is retrained; routing goes on meanwhile.

        A sample of its prompts is kept if the router has one of any other, or as `keep_sample` says.
        """
        _checked(name)
        with self._change:
            if name in self.experts:
                raise InputError(
                    f"'{name}' is an expert already: merge(name, texts) gives it more, remove(name) takes it out"
                )
            self._rebuild({**self.statistics, name: self._more(name, domain, keep_sample)})

    def merge(self, name: str, domain: Domain, *, keep_sample: bool | None = None) -> None:
        """Give an expert more texts, exactly as if they had been there from the beginning."""
        with self._change:
            self._require(name)
            self._rebuild({**self.statistics, name: self.statistics[name] + self._more(name, domain, keep_sample)})

    def remove(self, name: str) -> None:
        """Take an expert out: the router is then, bit for bit, one that never saw it."""
        with self._change:
            self._require(name)
            if len(self.experts) == 1:
                raise InputError(f"'{name}' is the only expert: a router needs at least one")
            self._rebuild({other: kept for other, kept in self.statistics.items() if other != name})

    def tune(self) -> tuple[Trial, ...]:
        """Choose scorer and selector anew on the prompts that were kept: everything tried, best first."""
        with self._change:
            parts, trials = _tuned(self.statistics, self.embedding, self._compiled.terms)
            self._swap(parts)
            return trials

    def _more(self, name: str, domain: Domain, keep_sample: bool | None) -> Statistics:
        """What is to be added, counted like what is there; of texts no sample is kept where the router has none."""
        known = self.statistics
        if keep_sample is None:
            keep_sample = isinstance(domain, Statistics) or any(own.sample is not None for own in known.values())
        sums = known.get(name, next(iter(known.values()))).sums
        window = 128 if sums is None else sums.window
        return _counted(name, domain, self.embedding, keep_sample=keep_sample, window=window)

    def _rebuild(self, statistics: Mapping[str, Statistics]) -> None:
        terms, experts = self._compiled.terms, tuple(statistics)
        default = terms.experts[terms.default]
        changed = replace(
            terms,
            experts=experts,
            default=experts.index(default) if default in experts else 0,
            policy=terms.policy.among(experts),
        )
        self._swap(_fitted(statistics, self.embedding, self.scorer, changed, self._parts.trials))

    def _swap(self, parts: RouterParts) -> None:
        self._parts = parts
        self._compiled = parts.compiled  # one reference: readers see all of the change or none of it

    def _require(self, name: str) -> None:
        if name not in self.experts:
            raise UnknownExpertError(f"no expert '{name}': this router has {', '.join(self.experts)}")

    def with_selector(self, selector: Selector) -> Router:
        """The same fit read another way: a new router, this one is unchanged."""
        parts = self._parts  # one read: a change swaps the reference
        terms, table = parts.compiled.terms, parts.compiled.table
        if selector.log_offset != terms.selector.log_offset:
            compiled = Table.compile(table.scores, log_offset=selector.log_offset)
            table = replace(compiled, usualness=table.usualness, pairs=table.pairs)
        kept = terms.calibration if type(selector) is type(terms.selector) else None  # votes are other evidence
        terms = replace(terms, selector=selector, calibration=kept)
        return Router(replace(parts, compiled=Compiled.build(terms, table)))

    def with_policy(self, policy: Policy, *, default: str | None = None) -> Router:
        """The same fit with other costs, threshold or default: a new router, this one is unchanged."""
        parts = self._parts
        compiled = parts.compiled
        place = compiled.default if default is None else _place(default, compiled.experts)
        terms = replace(compiled.terms, policy=check_policy(policy, compiled.experts), default=place)
        return Router(replace(parts, compiled=replace(compiled, terms=terms)))

    def with_calibration(self, calibration: Calibration) -> Router:
        """The same fit, its confidence read by another calibration: a new router, this one is unchanged."""
        parts = self._parts
        terms = replace(parts.compiled.terms, calibration=calibration)
        return Router(replace(parts, compiled=replace(parts.compiled, terms=terms)))

    # reading ----------------------------------------------------------------------------------------------------

    @property
    def experts(self) -> tuple[str, ...]:
        """The experts' names, in the order they were added."""
        return self._compiled.experts

    @property
    def default(self) -> str:
        """The expert for prompts without a single known token."""
        return self._compiled.experts[self._compiled.default]

    @property
    def policy(self) -> Policy:
        """What experts cost, what that is worth, and when to abstain."""
        return self._compiled.terms.policy

    @property
    def calibrated(self) -> bool:
        """Whether confidence was calibrated on held-out prompts."""
        return self._compiled.terms.calibration is not None

    @property
    def trials(self) -> tuple[Mapping[str, Any], ...]:
        """What tuning tried, best first; empty when the router was not tuned."""
        return self._parts.trials

    @property
    def selector(self) -> Selector:
        """How a prompt's tokens decide."""
        return self._compiled.selector

    @property
    def compiled(self) -> Compiled:
        """The read side: experts, table and ballots as one object."""
        return self._compiled

    @property
    def scorer(self) -> Scorer:
        """How the router was fitted."""
        return self._parts.scorer

    @property
    def tokenizer(self) -> Tokenizer:
        """What turns text into token ids."""
        return self._parts.tokenizer

    @property
    def statistics(self) -> Mapping[str, Statistics]:
        """Each expert's statistics: all that is needed to change the router."""
        return self._parts.statistics()

    @property
    def embedding(self) -> Embedding:
        """The embedding the router was fitted with."""
        return self._parts.embedding()

    # routing ----------------------------------------------------------------------------------------------------

    def route(self, text: str, *, weights: Costs | None = None) -> Decision:
        """Name the expert for a prompt. A prompt without a known token abstains: the default expert.

        `weights` says what a unit of cost is worth this time, `{"price": 0.1}`, instead of the router's policy.
        """
        return decide(self._compiled, self._encode(_unshouted(text)), self._unknown, weights)

    def route_batch(self, texts: Iterable[str], *, weights: Costs | None = None) -> list[Decision]:
        """Route many prompts: the decisions of `route`, several times as fast."""
        compiled = self._compiled
        if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
            raise InputError(f"texts must be an iterable of str, found one {type(texts).__name__}: use route for one")

        def decide_chunk(chunk: Sequence[str]) -> list[Decision]:
            flat, lengths = self.tokenizer.encode_batch([_unshouted(text) for text in chunk])
            return decide_batch(compiled, flat, lengths.astype(np.int64), self._unknown, weights)

        chunks = list(_chunks(list(texts)))
        if len(chunks) < 2:
            return [decision for chunk in chunks for decision in decide_chunk(chunk)]
        with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="ir3de-route") as pool:
            return list(chain.from_iterable(pool.map(decide_chunk, chunks)))

    def explain(self, text: str, *, weights: Costs | None = None) -> Explanation:
        """Show every token's vote, entropy and scores, and whether it counted."""
        return explain(self._compiled, self.tokenizer.pieces(_unshouted(text)), self._unknown, weights)

    # keeping ----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path, *, serving: bool = False) -> Path:
        """Write the router to a folder; `serving=True` leaves out what only changes need."""
        return save_router(self._parts, path, serving=serving)

    @staticmethod
    def load(path: str | Path) -> Router:
        """Read a router that `save` wrote."""
        return Router(load_router(path))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Router is not pickled or copied: save it to a folder, and load it from there where it is needed"
        )

    def __repr__(self) -> str:
        return f"Router({', '.join(self.experts)}; {self.scorer}, {self.selector})"


def _fitted(
    statistics: Mapping[str, Statistics],
    embedding: Embedding,
    scorer: Scorer,
    terms: Terms,
    trials: Sequence[Mapping[str, Any]] = (),
) -> RouterParts:
    """Fit, calibrate and compile."""
    reading = calibrate(list(statistics.values()), embedding, scorer, terms.selector)
    return _compiled(statistics, embedding, scorer, terms, reading, trials)


def _tuned(
    statistics: Mapping[str, Statistics], embedding: Embedding, terms: Terms
) -> tuple[RouterParts, tuple[Trial, ...]]:
    """Choose scorer and selector, fit, calibrate and compile; and what was tried."""
    choice = choose(list(statistics.values()), embedding, cap=terms.selector.cap)
    terms = replace(terms, selector=choice.selector)
    tried = [trial.to_dict() for trial in choice.trials]
    chosen = dict(zip(statistics, choice.domains, strict=True))
    return _compiled(chosen, embedding, choice.scorer, terms, choice.reading, tried), choice.trials


def _compiled(
    statistics: Mapping[str, Statistics],
    embedding: Embedding,
    scorer: Scorer,
    terms: Terms,
    reading: Reading,
    trials: Sequence[Mapping[str, Any]],
) -> RouterParts:
    # even where there is none: one learnt with other experts would tell of them after they are gone
    terms = replace(terms, calibration=reading.calibration, familiarity=reading.familiarity)
    table = Table.of(
        scorer,
        list(statistics.values()),
        embedding.matrix,
        log_offset=terms.selector.log_offset,
        usualness=terms.familiarity is not None,
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


def _unshouted(text: str) -> str:
    """A long prompt in capitals in small letters: its tokens are then those the router was fitted on."""
    return text.lower() if isinstance(text, str) and text.isupper() and len(text) >= SHOUTED else text


def _place(default: str, experts: Sequence[str]) -> int:
    if default not in experts:
        raise UnknownExpertError(f"the default expert '{default}' is not among {', '.join(experts)}")
    return experts.index(default)


def _counted(name: str, domain: Any, embedding: Embedding, *, keep_sample: bool, window: int = 128) -> Statistics:
    if isinstance(domain, Statistics):
        if domain.fingerprint != embedding.fingerprint:
            raise MismatchError(
                f"the statistics of '{name}' belong to embedding {domain.fingerprint[:12]}, the router uses "
                f"{embedding.fingerprint[:12]} ({embedding.name}): collect them again with that embedding"
            )
        statistics = domain if keep_sample else domain.without_sample()
    elif isinstance(domain, str) or not isinstance(domain, Iterable):
        raise InputError(
            f"the texts of '{name}' must be an iterable of str or Statistics, found {type(domain).__name__}"
        )
    else:
        statistics = collect(domain, embedding=embedding, window=window, keep_sample=keep_sample)
    if statistics.tokens == 0:
        raise InputError(f"expert '{name}' has no text: give it at least one prompt of its domain")
    return statistics


def _checked(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise InputError(f"an expert's name must be a non-empty string, found {name!r}")
    if any(ord(character) < 32 for character in name):
        raise InputError(f"an expert's name must not hold control characters, found {name!r}")
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise InputError(f"an expert's name must not hold half of a surrogate pair, found {name!r}")
    return name


def _chunks(texts: Sequence[str]) -> Iterable[Sequence[str]]:
    begin = characters = 0
    for index, text in enumerate(texts):
        characters += len(text) if isinstance(text, str) else 0
        if characters >= BATCH_CHARACTERS:
            yield texts[begin : index + 1]
            begin, characters = index + 1, 0
    if begin < len(texts):
        yield texts[begin:]
