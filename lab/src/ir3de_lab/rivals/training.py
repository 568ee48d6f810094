"""Training by gradients, the same for all that learns so: AdamW, a rate that rises and falls, the best epoch kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ir3de_lab.rivals.balancing import balanced
from ir3de_lab.rivals.interface import Fitted, Indices

WEIGHT_DECAY = 0.01
WARM = 10  # the rate rises over one in so many steps

Fall = Callable[[float], float]  # from the part of the fall that is done to the share of the rate that is left


@dataclass(frozen=True)
class Epoch:
    """How an epoch went: the mean training loss, and the percentage right in validation, the mean over domains."""

    loss: float
    accuracy: float


@dataclass(frozen=True)
class Course:
    """How a training went: the epochs that were run, and which of them was kept; 0 where none was fit to be."""

    history: tuple[Epoch, ...]
    kept_epoch: int

    @property
    def accuracy(self) -> float:
        """The percentage right in validation with the weights that were kept."""
        return self.history[max(self.kept_epoch, 1) - 1].accuracy


@dataclass(frozen=True)
class Trained(Fitted):
    """A rival that was trained, how that went, and how many texts of each domain it learnt from and was kept by."""

    course: Course
    trained_on: tuple[int, ...]
    validated_on: tuple[int, ...]

    @property
    def history(self) -> tuple[Epoch, ...]:
        return self.course.history


def linear(done: float) -> float:
    return 1.0 - done


def cosine(done: float) -> float:
    return (1.0 + math.cos(math.pi * done)) / 2.0


def share_of_rate(step: int, steps: int, fall: Fall) -> float:
    """How much of the full rate a step gets: all of it where the rise ends, nothing after the last."""
    warm = -(-steps // WARM)
    return (step + 1) / warm if step < warm else fall((step + 1 - warm) / (steps - warm + 1))


def batches(places: Indices, size: int) -> list[Indices]:
    """The places in their order, about so many at a time."""
    return np.array_split(places, -(-len(places) // size))


def balanced_epochs(places: Indices, labels: Indices, number: int, size: int, rng: np.random.Generator) -> list[Any]:
    """For each epoch its batches: about as many texts as there are `places`, all domains alike."""
    return [batches(places[balanced(labels[places], len(places), rng)], size) for _ in range(number)]


def train(
    torch: Any,
    rates: Sequence[tuple[Any, float]],  # weights, and the full rate of each
    score: Callable[[Indices], Any],
    labels: Indices,
    epochs: Sequence[Sequence[Indices]],
    *,
    fall: Fall,
    most_gradient: float | None = None,
) -> Iterator[float]:
    """Train on batches of places in `labels`; after every epoch, its mean loss."""
    groups = [(list(weights), rate) for weights, rate in rates]
    optimizer = torch.optim.AdamW(
        [{"params": own, "lr": rate} for own, rate in groups], weight_decay=WEIGHT_DECAY, fused=True
    )
    steps = sum(map(len, epochs))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: share_of_rate(step, steps, fall))
    for epoch in epochs:
        total = 0.0
        for places in epoch:
            scores = score(places)
            loss = torch.nn.functional.cross_entropy(scores, torch.from_numpy(labels[places]).to(scores.device))
            loss.backward()
            if most_gradient is not None:
                torch.nn.utils.clip_grad_norm_([weights for own, _ in groups for weights in own], most_gradient)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            total += loss.detach()  # stays where it is: reading it here would wait for the accelerator
        yield float(total) / len(epoch)


def keep_best(
    torch: Any, module: Any, losses: Iterator[float], accuracy: Callable[[], float], *, patience: int | None = None
) -> Course:
    """Train, and put back the weights of the first epoch that was most accurate.

    With `patience` the training ends after so many epochs in a row that were not better than the best; without it, at
    the end of `losses`. An epoch that leaves weights without a value ends it too; if it is the first, the weights
    before it are kept.
    """
    best, kept_epoch, kept = -math.inf, 0, _copied(module)
    history: list[Epoch] = []
    module.train()
    for number, loss in enumerate(losses, 1):
        module.eval()
        history.append(Epoch(loss, accuracy()))
        if not all(bool(torch.isfinite(weights).all()) for weights in module.parameters()):
            break
        if history[-1].accuracy > best:
            best, kept_epoch, kept = history[-1].accuracy, number, _copied(module)
        if patience is not None and number - kept_epoch >= patience:
            break
        module.train()
    module.load_state_dict(kept)
    module.eval()
    return Course(tuple(history), kept_epoch)


def _copied(module: Any) -> dict[str, Any]:
    return {name: values.detach().clone() for name, values in module.state_dict().items()}
