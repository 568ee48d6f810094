"""What adding, removing and tuning cost beside a whole fit, in one run."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from ir3de import Router
from ir3de.scorers import Blend
from ir3de_lab.benchmarks.measurement import Figure, Watch
from ir3de_lab.benchmarks.synthetic import Synthetic

SIZES = ((20, 750), (77, 130), (150, 120))  # experts, and prompts of each
ROUNDS = 3
MAX_CHANGE, MAX_TUNE, MAX_DEFAULT = 0.15, 3.0, 3.0  # as a share, and as multiples, of a fit
CHANGES = ("add", "remove", "add and confidence", "remove and confidence")


def measure(experts: int, prompts: int, texts: Sequence[str], *, rounds: int = ROUNDS) -> list[Figure]:
    """Fit, add and remove an expert, read a confidence, and tune, by turns: in closed form, and with the defaults.

    A change in closed form calibrates confidence when it is first asked for, so that is measured with the change too.
    """
    made, watch = Synthetic(texts), Watch()
    domains = {f"expert {number}": made.prompts(number, prompts) for number in range(experts)}
    for _ in range(rounds):
        with watch("closed form, fit"):
            closed = Router.fit(domains, scorer=Blend())
        with watch("default, fit"):
            default = Router.fit(domains)
        for name, router in (("closed form", closed), ("default", default)):
            _change(router, domains, texts[0], name, watch)
        with watch("tune"):
            default.tune()
    medians = watch.medians
    raw = {"experts": experts, "prompts": prompts, **watch.to_dict()}
    figures = [
        Figure(f"{name} fit, {experts} experts × {prompts} prompts", medians[f"{name}, fit"], "s", None, False, raw)
        for name in ("closed form", "default")
    ]
    pairs = [(f"closed form, {what}", "closed form, fit", MAX_CHANGE if " " not in what else None) for what in CHANGES]
    pairs += [("default, fit", "closed form, fit", MAX_DEFAULT), ("tune", "default, fit", MAX_TUNE)]
    pairs += [(f"default, {what}", "default, fit", None) for what in CHANGES[:2]]
    return figures + [
        Figure(f"{what} / {fit}; {experts} experts", medians[what] / medians[fit], "×", bar, False, raw)
        for what, fit, bar in pairs
    ]


def _change(router: Router, domains: dict[str, list[str]], question: str, name: str, watch: Watch) -> None:
    """Remove the last expert and add it again."""
    changed, last = copy(router), list(domains)[-1]
    for suffix in ("", " and confidence"):
        with watch(f"{name}, remove{suffix}"):
            changed.remove(last)
            if suffix:
                _ = changed.route(question).confidence
        with watch(f"{name}, add{suffix}"):
            changed.add(last, domains[last])
            if suffix:
                _ = changed.route(question).confidence
