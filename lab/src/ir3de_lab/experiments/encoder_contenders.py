"""The routers that stand on an encoder: nearest neighbours, MoDEM frozen and fine-tuned, the BERT-router.

Each is planned first, so that one that is there already, or that this machine is too slow for, is not begun. The
number of neighbours and the learning rate are tried on a held-out part of the training texts; what was right there is
kept with the choices, and the tables choose by it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ir3de.embedding.packaged_models import get_title, locate
from ir3de.errors import EmbeddingError, InputError, MissingExtraError
from ir3de_lab.experiments.choices import SHARED, Traits
from ir3de_lab.experiments.contenders import Entry, Texts, timed
from ir3de_lab.experiments.settings import Encoders
from ir3de_lab.rivals import Fitted
from ir3de_lab.rivals.balancing import held_out, mean_recall
from ir3de_lab.rivals.encoder import POOLINGS, Encoder, Pooling, Precision
from ir3de_lab.rivals.encoder_heads import NearestNeighbours
from ir3de_lab.rivals.fine_tuned import FineTuned
from ir3de_lab.rivals.interface import labelled, needed
from ir3de_lab.rivals.modem import Modem
from ir3de_lab.rivals.training import Trained

NEIGHBOURS = Traits(central_data=True, language_model=True, adds_experts=True)  # vectors are added, none changes
TRAINED_ENCODER = Traits(central_data=True, language_model=True, adds_experts=False)

NEAREST_K = (1, 5, 10)  # as in the paper
RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)  # those of the paper's figure
FULL_RATES = (1e-3, 1e-2, 1e-4, 1e-1, 1e-5)  # the usual ones first: each takes a while
BERT_RATES = (2e-5, 5e-5, 1e-5)  # of the encoder and its head alike: those that are usual for BERT
MODEM_TEXTS = 1_750  # of a domain, as in the paper
MOST_EPOCHS = 3  # of training a whole encoder; one that is not better ends it
HELD_OUT = 0.1  # of a domain's training texts, to choose k on, and the BERT-router's epoch and rate
LARGEST_ON_CORES = 50_000_000  # parameters: a larger encoder takes hours without an accelerator
MOST_TOKENS_ON_CORES = 1_000_000  # of training texts
CHARACTERS = 4  # of a token, about
SAMPLE = 512  # texts to take an encoder's time on
NO_ACCELERATOR = ", which takes hours without an accelerator, and the machine of the run had none"

Method = Literal["kNN", "MoDEM", "BERT-router"]


@dataclass(frozen=True)
class Planned:
    """One router; `at` is its number of neighbours or its learning rate."""

    method: Method
    source: str  # of the encoder
    tokens: int  # that it reads
    pooling: Pooling = "cls"
    size: str = ""  # of MoDEM
    frozen: bool = True
    at: float | None = None

    @property
    def axis(self) -> str | None:
        return "neighbours" if self.method == "kNN" else "rate"

    @property
    def encoder(self) -> str:
        return f"{get_title(self.source)}, {self.tokens} tokens"

    @property
    def series(self) -> str | None:
        """The curve that it is on.

        >>> Planned("kNN", "minilm-l6", 512, "cls", at=5.0).series
        'kNN, CLS (MiniLM-L6, 512 tokens)'
        """
        return None if self.at is None else f"{self._begun} ({self.encoder})"

    @property
    def name(self) -> str:
        """What it is called.

        >>> Planned("MoDEM", "minilm-l6", 512, size="small", frozen=False, at=1e-5).name
        'MoDEM-small, fine-tuned, rate=1e-05 (MiniLM-L6, 512 tokens)'
        """
        at = "" if self.at is None else f", {'k' if self.method == 'kNN' else 'rate'}={self.at:g}"
        return f"{self._begun}{at} ({self.encoder})"

    @property
    def _begun(self) -> str:
        if self.method == "kNN":
            return f"kNN, {'CLS' if self.pooling == 'cls' else 'mean'}"
        if self.method == "MoDEM":
            return f"MoDEM-{self.size}, {'frozen' if self.frozen else 'fine-tuned'}"
        return self.method


@dataclass(frozen=True)
class Ways:
    """How the routers are run: which are there already, and what is done about those that are not run."""

    done: Collection[str] = ()  # names of routers
    matching: Collection[str] = ()  # of the others, only those whose name has one of these in it
    store: Path | None = None  # a folder for vectors
    precision: Precision = "float32"
    patient: bool = False  # without an accelerator, run also what takes hours
    leave_out: Callable[[str, str], None] = field(default=lambda name, reason: None)  # a router or its curve, and why
    embeddings: Sequence[str] = ()  # more of them than those that are known

    def wants(self, name: str) -> bool:
        """Whether a router was asked for."""
        return not self.matching or any(part in name for part in self.matching)


def planned(named: Encoders) -> list[Planned]:
    """Every router, those first that only encode."""
    sources = list(dict.fromkeys((named.small, named.large, named.bert)))
    sizes: dict[str, str] = {}
    for size, source in (("small", named.small), ("large", named.large)):
        sizes[source] = f"{sizes[source]}/{size}" if source in sizes else size
    plan = partial(Planned, tokens=named.tokens)
    nearest = [
        plan("kNN", source, pooling=pooling, at=float(k))
        for source in sources
        for pooling in POOLINGS[::-1]
        for k in NEAREST_K
    ]
    frozen = [plan("MoDEM", source, size=size, at=rate) for source, size in sizes.items() for rate in RATES]
    bert = [plan("BERT-router", source, frozen=False, at=rate) for source in sources for rate in BERT_RATES]
    tuned = [
        plan("MoDEM", source, size=size, frozen=False, at=rate) for source, size in sizes.items() for rate in FULL_RATES
    ]
    return [*nearest, *frozen, *bert, *tuned]


def lacking() -> str | None:
    """Why no router on an encoder can be run here, if none can: a package that is not there."""
    try:
        for package in ("torch", "transformers"):
            needed(package, extra="encoders", purpose="Running a sentence encoder")
    except MissingExtraError as error:
        return str(error)
    return None


def encoders(train: Texts, named: Encoders, ways: Ways) -> Iterator[Entry]:
    """The routers that can be run here and are not there yet; of the others it is said why."""
    opened: dict[str, Opened] = {}
    for plan in planned(named):
        try:
            if plan.source not in opened:
                opened[plan.source] = Opened.of(plan.source, plan.tokens, ways)
            on = opened[plan.source]
            plan = replace(plan, tokens=on.encoder.reads)
            if plan.name in ways.done or not ways.wants(plan.name):
                continue
            if not ways.patient and (reason := find_slowness(on.encoder, train, trains=not plan.frozen)):
                ways.leave_out(plan.series or plan.name, reason)
                continue
        except (InputError, EmbeddingError) as error:  # a model that is not here, or is none
            ways.leave_out(plan.series or plan.name, str(error))
            continue
        yield _entry(plan, on, train)


def find_slowness(encoder: Encoder, train: Texts, *, trains: bool) -> str | None:
    """Why a router on the encoder takes hours here, if it does."""
    if encoder.device != "cpu":
        return None
    if trains:
        return f"it trains an encoder{NO_ACCELERATOR}"
    if sum(weights.numel() for weights in encoder.weights) > LARGEST_ON_CORES:
        return f"its encoder is large{NO_ACCELERATOR}"
    tokens = sum(min(len(text) // CHARACTERS, encoder.reads) for texts in train.values() for text in texts)
    if tokens > MOST_TOKENS_ON_CORES:
        return f"it has {tokens / 1e6:.1f} million tokens to encode{NO_ACCELERATOR}"
    return None


@dataclass
class Opened:
    """An encoder, and once its training vectors are remembered, the microseconds that a text takes."""

    encoder: Encoder
    encoding_us: float | None = None

    @classmethod
    def of(cls, source: str, tokens: int, ways: Ways) -> Opened:
        folder = ways.store / f"{source.replace('/', '-')}-{tokens}-tokens" if ways.store else None
        return cls(Encoder(locate(source), longest=tokens, remember=True, store=folder, precision=ways.precision))

    def remember(self, train: Texts) -> float:
        """Encode the training texts once for all routers."""
        if self.encoding_us is None:
            sample = [text for texts in train.values() for text in texts[: SAMPLE // len(train)]]
            with self.encoder.timed():
                self.encoder.encode(sample[:8])  # warm up
                _, seconds = timed(lambda: self.encoder.encode(sample))
            self.encoding_us = 1e6 * seconds / len(sample)
            self.encoder.encode([text for texts in train.values() for text in texts])
        return self.encoding_us


def _entry(plan: Planned, on: Opened, train: Texts) -> Entry:
    encoding = on.remember(train) if plan.frozen else None
    fitted, seconds = timed(partial(_fit, plan, on.encoder, train))
    used = sum(len(texts) if plan.method == "kNN" else min(len(texts), MODEM_TEXTS) for texts in train.values())
    seconds += used * (encoding or 0.0) / 1e6
    traits = NEIGHBOURS if plan.method == "kNN" else TRAINED_ENCODER
    course = describe_training(fitted, whole=not plan.frozen) if isinstance(fitted, Trained) else {}
    about = {**describe_encoder(on.encoder), **course, **_validated(plan, on.encoder, train, fitted)}
    return Entry(
        plan.name, "rivals", traits, fitted, seconds, plan.series, plan.axis, plan.at, get_title(plan.source),
        encoding_us=encoding, about=about,
    )  # fmt: skip


def _fit(plan: Planned, encoder: Encoder, train: Texts) -> Fitted:
    if plan.method == "kNN":
        return NearestNeighbours(encoder, int(plan.at or 1), plan.pooling).fit(train)
    if plan.method == "MoDEM":
        epochs = None if plan.frozen else MOST_EPOCHS
        return Modem(encoder, rate=plan.at or 0.0, frozen=plan.frozen, epochs=epochs, most_texts=MODEM_TEXTS).fit(train)
    return FineTuned(
        encoder, rate=plan.at or 0.0, pooling="cls", epochs=MOST_EPOCHS, most_texts=MODEM_TEXTS, validated=HELD_OUT
    ).fit(train)


def describe_encoder(encoder: Encoder) -> dict[str, Any]:
    return {
        "encoder_tokens": encoder.reads,
        "encoder_trained_on_tokens": encoder.trained_on,
        "encoder_precision": encoder.precision,
        SHARED: encoder.shares_accelerator(),
    }


def describe_training(fitted: Trained, *, whole: bool) -> dict[str, Any]:
    """What really ran: how many epochs, which was kept, on how many texts of each domain; `whole` adds every epoch."""
    course = fitted.course
    told: dict[str, Any] = {
        "epochs_run": len(course.history),
        "epoch_kept": course.kept_epoch,
        "texts_trained_on": dict(zip(fitted.names, fitted.trained_on, strict=True)),
        "texts_validated_on": dict(zip(fitted.names, fitted.validated_on, strict=True)),
    }
    if whole:
        told["most_epochs"] = MOST_EPOCHS
        told["validation_by_epoch"] = [round(epoch.accuracy, 3) for epoch in course.history]
    return told


def _validated(plan: Planned, encoder: Encoder, train: Texts, fitted: Fitted) -> Mapping[str, float]:
    """The percentage right on training texts held out, the mean over the domains: what k or the rate is chosen by."""
    if isinstance(fitted, Trained):
        return {"validation": round(fitted.course.accuracy, 3)}
    if plan.method != "kNN":
        return {}
    data = labelled(train)
    places, spared = held_out(data.labels, 1 - HELD_OUT, HELD_OUT, np.random.default_rng(0))
    part = {name: [data.texts[i] for i in places if data.labels[i] == n] for n, name in enumerate(data.names)}
    chosen = (
        NearestNeighbours(encoder, int(plan.at or 1), plan.pooling).fit(part).choose([data.texts[i] for i in spared])
    )
    return {"validation": round(mean_recall(data.labels[spared], chosen), 3)}
