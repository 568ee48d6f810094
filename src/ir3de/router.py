"""`Router`: fit, add, remove, merge; route, explain. Reads never wait for a change."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

import numpy as np
import numpy.typing as npt

from ir3de.embedding import Embedding
from ir3de.engines.engine import Counting
from ir3de.fitting.consulting import USUAL_SHARE, ask_encoder, explain_text, route_texts, start_encoding
from ir3de.fitting.domain_training import fit_domains
from ir3de.fitting.domains import Domain, Gift, OutcomeRows, ScorerChoice, check_request, make_rules
from ir3de.fitting.exchanging import ask_proposals, ask_teacher, exchange
from ir3de.fitting.facts import RouterFacts
from ir3de.fitting.inputs import describe_domain, describe_domains, prepare_lesson, split_by_label
from ir3de.fitting.loading import load_router
from ir3de.fitting.outcomes import collect_rows, fit_outcomes, name_tasks
from ir3de.fitting.parts import KeptPrompt, RouterParts, describe_router, draw_router
from ir3de.fitting.saving import save_router
from ir3de.policies import Calibration, Costs, Policy
from ir3de.routing.compiled import CompiledRouter, decide_ids, list_probabilities
from ir3de.routing.consulting import is_unsure
from ir3de.routing.decision import Decision, require_content
from ir3de.routing.explanation import Explanation
from ir3de.routing.messages import MAX_GENERIC_CHARS
from ir3de.routing.words import Flips, find_flips
from ir3de.scorers import Scorer
from ir3de.scorers.arithmetic import on_device
from ir3de.selectors import Average, Selector
from ir3de.statistics import Contribution, Recipe, Statistics

if TYPE_CHECKING:
    from ir3de.corpora import Labelled
    from ir3de.encoders import Encoder
    from ir3de.fitting.lessons import Lesson
    from ir3de.fitting.proposals import Proposal
    from ir3de.fitting.teachers import TeacherChoice
    from ir3de.fitting.teaching import Taught
    from ir3de.fitting.tuning import Trial

QuickRoute: TypeAlias = Callable[[str], Decision | None]


class Router(RouterFacts):
    """Sends each prompt to the expert whose domain it belongs to.

    >>> import ir3de
    >>> router = ir3de.Router.fit({
    ...     "maths": ["What is 12 times 7?", "Solve x + 3 = 10 for x."],
    ...     "law": ["Is this contract void?", "Can my landlord evict me?"],
    ... })
    >>> router.route("Solve 3x = 12.").expert
    'maths'
    >>> router.add("cooking", ["How long do I boil an egg?", "A recipe for bread, please."])
    >>> router.remove("law")
    >>> router.experts
    ('maths', 'cooking')
    """

    def __init__(self, parts: RouterParts) -> None:
        """Build a router from its parts; users call `Router.fit` or `Router.load`."""
        self._ready: tuple[CompiledRouter | None, QuickRoute | None] = (None, None)
        self._swap(parts)
        self._encode, self._unknown = parts.tokenizer.encode, parts.tokenizer.unknown_id
        self._change = threading.Lock()

    @classmethod
    def fit(
        cls,
        domains: Mapping[str, Domain] | Labelled,
        labels: Iterable[Any] | None = None,
        *,
        label: str | None = None,
        text: str | None = None,
        descriptions: Mapping[str, str] | None = None,
        embedding: Embedding | None = None,
        scorer: Scorer | None = None,
        selector: Selector | None = None,
        default: str | None = None,
        policy: Policy | None = None,
        background: Iterable[str] | Statistics | None = None,
        encoder: str | Encoder | None = None,
        encoder_share: float = USUAL_SHARE,
        unlabelled: Iterable[Any] | str | Path | None = None,
        teacher: TeacherChoice | Lesson | None = None,
        answers: str | Path | None = None,
        tune: bool = False,
        keep_sample: bool = True,
        device: str | None = None,
        **counting: Unpack[Counting],
    ) -> Router:
        """Fit a router from each expert's texts, or from statistics or contributions collected elsewhere.

        `domains` is {expert: texts}; or texts, whose experts are `labels`; or a DataFrame, a Dataset, rows or files in
        which `label` and `text` name the columns; or a folder of experts (docs/your-data.md). `descriptions`,
        {"law": "contracts, wills"}, count as 20 prompts each, with or without texts.

        Without a scorer, the fit chooses between the closed form (`Blend`), the discriminative fit (`Logistic`) and
        their sum on held-out prompts; `trials` has the results. `tune=True` tries more. `default` is the expert for
        prompts on which the router abstains. `background` are prompts of no domain; a broad set is built in.

        A `teacher` labels `unlabelled` texts, and the router learns from those labels too, if that helps on held-out
        prompts: `teaching` has the result. It is an encoder's name or folder, "http://host/v1#model", or a function
        from texts to names or probabilities (docs/teacher.md). `answers` is a file that keeps what it answered.

        A sample of up to 1,024 prompts an expert is kept, as token ids, to calibrate confidence and to tune again. It
        is saved with the router, but never in a serving copy. `keep_sample=False` keeps none, so neither is possible.

        `encoder` is a sentence encoder ("minilm-l6", a folder, an `Encoder`) that is asked for a second opinion where
        the table is unsure, on about `encoder_share` of the prompts (docs/second-opinion.md).

        Texts are str, or rows with their source: {"text": …, "source": "forum"}, or files (`ir3de.engines.Files`).
        `engine`, `workers`, `address`, `checkpoint` and `skip_bad` control how files are counted, as in
        `ir3de.engines.collect_files`. `device` ("cuda", "cuda:1", "cpu") fits with torch instead of numpy.
        """
        split = split_by_label(domains, label, text, counting, labels)
        used, scorer, selector = check_request(split, embedding, scorer, selector, tune=tune, keep_sample=keep_sample)
        rules = make_rules(split, selector, default, policy)  # checks all it can before anything is counted
        encoded = None if encoder is None else start_encoding(encoder, encoder_share, keep_sample=keep_sample)
        own = describe_domains(split, descriptions)
        lesson = prepare_lesson(unlabelled, teacher, answers, descriptions)
        options: dict[str, Any] = {"tune": tune, "keep_sample": keep_sample, "counting": counting}
        options |= {"encoded": encoded, "lesson": lesson}
        with on_device(device):  # raises an error for a missing device before anything is counted
            return cls(fit_domains(own, used, scorer, rules, background, **options))

    @classmethod
    def fit_outcomes(
        cls,
        rows: OutcomeRows,
        *,
        embedding: Embedding | None = None,
        field: str = "scores",
        default: str | None = None,
        policy: Policy | None = None,
        guard: bool = True,
    ) -> Router:
        """Fit a router from the scores of models on prompts: it chooses the model of the largest expected score.

        A row has `text` (or `prompt`), may have a `task`, and maps models to numbers, larger being better, in `field`;
        scores may be missing or None. `default` is the model for prompts without a known token (else the best). With
        `guard`, the best single model replaces routing that is worse on held-out prompts, and `validation` has the
        reason. Without it such routing is kept, to share prompts between a strong and a weak model.

        >>> import ir3de
        >>> rows = [{"text": "What is 12 times 7?", "task": "maths", "scores": {"large": 1, "small": 0}},
        ...         {"text": "Who wrote Faust?", "task": "facts", "scores": {"large": 0.4, "small": 0.9}}]
        >>> ir3de.Router.fit_outcomes(rows).experts
        ('large', 'small')
        """
        chosen = embedding or Embedding.default()
        outcomes = collect_rows(rows, chosen, field)
        rules = make_rules(outcomes.models, Average(), default, policy)
        return cls(fit_outcomes(outcomes, chosen, rules, default=default, guard=guard))

    def add_outcomes(self, rows: OutcomeRows, *, field: str = "scores", merge: bool = False) -> None:
        """Add the models of these rows, exactly as if they had always been there; `merge` lets them have more rows."""
        with self._change:
            self._swap(self._parts.training.give_rows(self._parts, rows, field, merge=merge))

    def add(
        self,
        name: str,
        domain: Domain = (),
        *,
        description: str | None = None,
        unlabelled: Iterable[Any] | str | Path | None = None,
        teacher: TeacherChoice | Lesson | None = None,
        keep_sample: bool | None = None,
        scorer: ScorerChoice = "keep",
        **counting: Unpack[Counting],
    ) -> None:
        """Add an expert from its texts or statistics: the router is then the one fitted from all of them together.

        Other threads can route meanwhile. The scorer stays, unless `scorer="choose"`: see `remove`. Confidence is
        calibrated by the first route, or when the router is saved. A `description` counts as 20 prompts. A sample of
        the texts is kept if the router has one of any other; `keep_sample` overrides that. Of the `unlabelled` texts,
        those that the `teacher` gives to this expert are used.
        """
        gift = Gift(name, describe_domain(name, domain, description), keep_sample, counting)
        lesson = prepare_lesson(unlabelled, teacher, None, {} if description is None else {name: description})
        with self._change:
            self._swap(self._parts.add(gift, scorer).teach(lesson, (name,), scorer))

    def merge(
        self,
        name: str,
        domain: Domain = (),
        *,
        description: str | None = None,
        keep_sample: bool | None = None,
        scorer: ScorerChoice = "keep",
        **counting: Unpack[Counting],
    ) -> None:
        """Give an expert more texts, exactly as if they had been there from the beginning; see `remove`."""
        gift = Gift(name, describe_domain(name, domain, description), keep_sample, counting)
        with self._change:
            self._swap(self._parts.merge(gift, scorer))

    def remove(self, name: str, *more: str, contribution: str | None = None, scorer: ScorerChoice = "keep") -> None:
        """Remove one or more experts: the router is then, bit for bit, one that never saw them.

        With the id of a `contribution`, only that one is removed from the expert, with the same result.

        The law of change: a router depends on its scorer, on what its experts were given and on their order, and not
        on earlier changes. Experts added one by one give the router fitted from all of them with this scorer; adding
        and removing leaves no trace. `scorer="choose"` gives the router that the fit or tuning would have made.
        """
        with self._change:
            self._swap(self._parts.remove((name, *more), contribution, scorer))

    def exchange(
        self,
        gone: Mapping[str, Sequence[str]],
        given: Mapping[str, Sequence[Contribution]],
        *,
        scorer: ScorerChoice | None = None,
    ) -> None:
        """Take contributions out, by expert and id, and give others, with one fit; see `remove`.

        Without `scorer`, the scorer is chosen again if the fit or tuning chose it.
        """
        with self._change:
            self._swap(exchange(self._parts, gone, given, scorer))

    def ask_teacher(
        self, unlabelled: Iterable[Any], teacher: TeacherChoice | Lesson, *, answers: str | Path | None = None
    ) -> Taught:
        """What a teacher's labels of these texts would give each expert. The router stays as it is."""
        return ask_teacher(self._parts, unlabelled, teacher, answers)

    def ask_proposals(
        self, texts: Sequence[str], teacher: TeacherChoice | Lesson, *, answers: str | Path | None = None
    ) -> list[Proposal | None]:
        """The expert that a teacher names for each text, for a person to confirm; None where it has no answer."""
        return ask_proposals(self._parts, texts, teacher, answers)

    def tune(
        self,
        *,
        unlabelled: Iterable[Any] | str | Path | None = None,
        teacher: TeacherChoice | Lesson | None = None,
        answers: str | Path | None = None,
    ) -> tuple[Trial, ...]:
        """Choose scorer and selector again on the kept prompts. Returns everything tried, best first.

        A `teacher` labels texts as in `fit`; what an earlier one taught is replaced.
        """
        lesson = prepare_lesson(unlabelled, teacher, answers)
        with self._change:
            parts, trials = self._parts.training.tune(self._parts)
            self._swap(parts.teach(lesson))
        return trials

    def _swap(self, parts: RouterParts) -> None:
        self._parts, self._compiled = parts, parts.compiled  # readers see all of the change in `_compiled`, or nothing

    def _prepare(self, compiled: CompiledRouter) -> QuickRoute | None:
        """The quick way for most texts, where there is one; the first route after a change makes it."""
        quick, unknown = self._parts.tokenizer.quick, self._unknown
        made = None if quick is None or unknown is not None else compiled.make_quick_route(quick)
        self._ready = compiled, made
        return made

    def with_selector(self, selector: Selector) -> Router:
        """A new router: the same fit read another way."""
        return Router(self._parts.with_selector(selector))

    def with_policy(self, policy: Policy, *, default: str | None = None) -> Router:
        """A new router: the same fit with other costs, threshold or default."""
        return Router(self._parts.with_policy(policy, default))

    def with_calibration(self, calibration: Calibration) -> Router:
        """A new router: the same fit with another calibration."""
        return Router(self._parts.with_calibration(calibration))

    def without_teacher(self) -> Router:
        """A new router: the one that would have been fitted without any teacher."""
        return Router(self._parts.training.forget_taught(self._parts))

    def with_statistics(self, statistics: Mapping[str, Statistics]) -> Router:
        """A new router: the same scorer, policy and confidence fitted to other statistics of the experts."""
        return Router(self._parts.training.replace_statistics(self._parts, statistics))

    def recipe(self, name: str | None = None) -> Recipe:
        """How texts for that expert, or for a new one, must be counted elsewhere."""
        return self._parts.training.recipe(name)

    def require_probabilities(self, why_not: str) -> None:
        """Raise an error with that reason if the router has expected scores instead of probabilities."""
        self._parts.training.require_probabilities(why_not)

    def route(self, text: str, *, weights: Costs | None = None, consult: bool | None = None) -> Decision:
        """Choose the expert for a prompt. On a prompt out of domain the router abstains: the default expert, or None.

        `weights`, {"price": 0.1}, is what a unit of cost is worth for this prompt, instead of the policy's weights.

        A router with an encoder shows it the prompts of which the table is unsure. `consult=False` never does, and
        `consult=True` always does, and raises an error where there is no encoder.
        """
        compiled = self._compiled
        ready, quick = self._ready
        if ready is not compiled:
            quick = self._prepare(compiled)
        if quick is not None and weights is None and not consult and (found := quick(text)) is not None:
            return found
        made = compiled.decide_one(self._encode(text, compiled.cap), self._unknown, weights)
        if len(text) <= MAX_GENERIC_CHARS:
            made = require_content(made, text)
        if consult is None and (compiled.rules.opinion is None or not is_unsure(made, text)):
            return made
        return ask_encoder(compiled.rules, [made], [text], weights, consult)[0]

    def route_batch(
        self, texts: Iterable[str], *, weights: Costs | None = None, consult: bool | None = None
    ) -> list[Decision]:
        """Route many prompts: the decisions of `route`, several times as fast. An encoder gets one batch."""
        return route_texts(self._compiled, self.tokenizer, texts, weights, consult)

    def route_ids(self, prompts: Iterable[npt.ArrayLike], *, weights: Costs | None = None) -> list[Decision]:
        """Route prompts that are token ids already, as `router.tokenizer.encode` gives them, without an encoder."""
        return decide_ids(self._compiled, prompts, self._unknown, weights)

    def name_tasks(self, prompts: Iterable[npt.ArrayLike]) -> list[str]:
        """The nearest task of prompts that are token ids, by the rows of an outcome router; "" where it has none."""
        return name_tasks(self._compiled, prompts)

    def route_kept(self) -> list[KeptPrompt]:
        """Route every kept prompt by a fit that did not see it: what the router does with prompts like these."""
        return self._parts.training.decide_kept(self._parts)

    @property
    def classes_(self) -> npt.NDArray[np.str_]:
        """The experts' names, as scikit-learn calls them: the columns of `predict_proba`."""
        return np.array(self.experts)

    def predict(self, texts: Iterable[str]) -> npt.NDArray[np.str_]:
        """The expert that `route` chooses, or the nearest: the likeliest one, unless policy or default decide."""
        router = Router(self._parts)  # with the same experts, even if this router changes meanwhile
        return np.array([one.expert or one.best for one in router.route_batch(texts)], router.classes_.dtype)

    def predict_proba(self, texts: Iterable[str]) -> npt.NDArray[np.float64]:
        """P(expert | in domain) for each prompt: (prompts, experts), in the order of `classes_`. Rows add up to one."""
        self.require_probabilities("it has expected scores and no probabilities: see route(text).ranking")
        router = Router(self._parts)
        return list_probabilities(router.route_batch(texts), router.experts)

    def explain(self, text: str, *, weights: Costs | None = None, consult: bool | None = None) -> Explanation:
        """Show which expert every word supports, every token's vote, entropy and scores, and what an encoder added."""
        return explain_text(self._compiled, self.tokenizer, text, weights, consult)

    def flips(self, text: str, *, weights: Costs | None = None) -> Flips:
        """Which words, taken out alone or a few together, would send the prompt to another expert."""
        compiled = self._compiled
        return find_flips(compiled, self.tokenizer.pieces(text, 2 * compiled.cap), self._unknown, weights)

    def save(self, path: str | Path, *, serving: bool = False) -> Path:
        """Write the router to a folder; `serving=True` leaves out what only changes need."""
        if serving:
            return save_router(self._parts, path, serving=True)[0]
        with self._change:
            folder, history = save_router(self._parts, path)
            self._parts = self._parts.as_saved(history)
        return folder

    @staticmethod
    def load(path: str | Path, *, mapped: bool = False, derived: str | Path | None = None) -> Router:
        """Read a router that `save` wrote.

        With `mapped=True`, processes on one machine share its numbers. Do not overwrite such a router in place, as `cp`
        does, unless you name a folder `derived` for a copy of the table and what is computed from it.
        """
        return Router(load_router(path, mapped=mapped, derived=derived))

    def __copy__(self, memo: object = None) -> Router:
        """An independent router. The two share their numbers, which never change."""
        return Router(self._parts)

    __deepcopy__ = __copy__

    def __reduce__(self) -> tuple[type[Router], tuple[RouterParts]]:
        """A pickled router is complete: it routes and changes in the same way."""
        return Router, (self._parts.read_all(),)

    def _repr_html_(self) -> str:
        return draw_router(self._parts)

    def __repr__(self) -> str:
        return describe_router(self._parts)
