"""What adding, removing and tuning cost beside a whole fit, in one run."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from ir3de import Router
from ir3de_lab.benchmarks.measurement import Figure, Watch
from ir3de_lab.benchmarks.synthetic import Synthetic

SIZES = ((20, 750), (77, 130), (150, 120))  # experts, and prompts of each
ROUNDS = 3
MAX_CHANGE, MAX_TUNE = 0.15, 3.0  # as a share, and as a multiple, of a fit


def measure(experts: int, prompts: int, texts: Sequence[str], *, rounds: int = ROUNDS) -> list[Figure]:
    """Fit, add and remove an expert, read a confidence, and tune, by turns.

    A change calibrates confidence when it is first asked for, so that is measured together with the change as well.
    """
    made, watch = Synthetic(texts), Watch()
    domains = {f"expert {number}": made.prompts(number, prompts) for number in range(experts)}
    name, question = f"expert {experts - 1}", texts[0]
    for _ in range(rounds):
        with watch("fit"):
            router = Router.fit(domains)
        changed = copy(router)
        for suffix in ("", " and confidence"):
            with watch(f"remove{suffix}"):
                changed.remove(name)
                if suffix:
                    _ = changed.route(question).confidence
            with watch(f"add{suffix}"):
                changed.add(name, domains[name])
                if suffix:
                    _ = changed.route(question).confidence
        with watch("tune"):
            router.tune()
    medians = watch.medians
    raw = {"experts": experts, "prompts": prompts, **watch.to_dict()}
    bars = {"add": MAX_CHANGE, "remove": MAX_CHANGE, "add and confidence": None, "remove and confidence": None}
    bars |= {"tune": MAX_TUNE}
    return [
        Figure(f"fit, {experts} experts × {prompts} prompts", medians["fit"], "s", None, False, raw),
        *(
            Figure(f"{what} / fit, {experts} experts", medians[what] / medians["fit"], "×", bar, False, raw)
            for what, bar in bars.items()
        ),
    ]
