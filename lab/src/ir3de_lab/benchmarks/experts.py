"""Time, memory and accuracy with 2, 20, 200 and 2,000 experts: what grows, and how fast.

Each number of experts is measured in a process of its own, so that its peak of memory is its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from ir3de import Router
from ir3de.scorers import Blend, Scorer
from ir3de.statistics import Statistics, collect
from ir3de_lab.benchmarks.measurement import Figure, peak_memory, side_by_side
from ir3de_lab.benchmarks.protocol import first_tokens
from ir3de_lab.benchmarks.synthetic import Synthetic

COUNTS = (2, 20, 200, 2_000)
TRAINING_PROMPTS = 32  # of a domain
HELD_OUT_PROMPTS = 10
MOST_HELD_OUT = 2_000  # of all domains together
TOKENS = 67  # of a prompt whose routing is timed, as in `ir3de bench speed`
TIMED_PROMPTS = 300
READ_DECISIONS = 30
ROUNDS = 21

AT, LIMIT = 200, 100.0  # with so many experts, microseconds a prompt may take
MAX_CHANGE = {"closed form": 0.1, "default": 0.3}  # with the first route, as a share of a fit; with so many experts


@dataclass(frozen=True)
class Scale:
    """What a router of so many experts costs, and how often it is right on held-out prompts."""

    experts: int
    collect_s: float  # all domains' texts to statistics
    fit_s: float  # from statistics: CPU time, as that of the three below
    add_s: float  # one more expert, and the first route after it
    closed_fit_s: float  # the same in closed form
    closed_add_s: float
    save_s: float
    load_s: float
    table_mb: float
    ballots_mb: float
    saved_mb: float
    serving_mb: float
    fit_peak_mb: float  # collecting and fitting
    peak_mb: float  # and adding, saving and loading
    closed_peak_mb: float  # collecting, fitting and adding in closed form
    serving_peak_mb: float  # a process that loads a serving copy and routes
    tokenizer_us: float  # of `route_us`
    route_us: float  # one prompt, its expert read
    route_batch_us: float
    confidence_us: float
    ranking_us: float
    accuracy: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def measure(count: int, texts: Sequence[str]) -> Scale:
    """Measure one number of experts, the default router and the closed form each in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "texts.json")
        path.write_text(json.dumps(list(texts)), encoding="utf-8")
        script = (
            "import json, sys; from pathlib import Path; from ir3de_lab.benchmarks import experts; "
            "texts = json.loads(Path(sys.argv[2]).read_text(encoding='utf-8')); "
            "print(json.dumps(getattr(experts, sys.argv[3])(int(sys.argv[1]), texts)))"
        )
        found = [
            json.loads(_in_new_process(script, count, path, name)) for name in ("measure_default", "measure_closed")
        ]
        return Scale(**found[0], **found[1])


def measure_here(count: int, texts: Sequence[str]) -> Scale:
    """Both in this process, whose peak of memory then includes all that it did before."""
    return Scale(**measure_default(count, texts), **measure_closed(count, texts))


def measure_closed(count: int, texts: Sequence[str]) -> dict[str, Any]:
    """The cost of a change in closed form, in this process."""
    changed = _Changed.measure(count, texts, Blend())
    return {"closed_fit_s": changed.fit_s, "closed_add_s": changed.add_s, "closed_peak_mb": peak_memory()}


@dataclass(frozen=True)
class _Changed:
    """A router that was fitted, had one more expert and lost it again; and what that took."""

    router: Router
    collect_s: float
    fit_s: float
    fit_peak_mb: float
    add_s: float

    @classmethod
    def measure(cls, count: int, texts: Sequence[str], scorer: Scorer | None = None) -> _Changed:
        domains, collect_s = _timed(lambda: _statistics(Synthetic(texts), count + 1))
        last = next(reversed(domains))
        one_more = domains.pop(last)
        router, fit_s = _timed(lambda: Router.fit(domains, scorer=scorer), time.process_time)
        fit_peak = peak_memory()
        _, add_s = _timed(lambda: (router.add(last, one_more), router.route(texts[0]).confidence), time.process_time)
        router.remove(last)
        return cls(router, collect_s, fit_s, fit_peak, add_s)


def measure_default(count: int, texts: Sequence[str]) -> dict[str, Any]:
    """All that is measured of the default router, in this process."""
    changed, synthetic = _Changed.measure(count, texts), Synthetic(texts)
    router = changed.router
    table, ballots = router.compiled.table, router.compiled.ballots
    return dict(
        experts=count,
        collect_s=changed.collect_s,
        fit_s=changed.fit_s,
        add_s=changed.add_s,
        **_kept(router),
        table_mb=(table.scores.nbytes + table.vote.nbytes + table.entropy.nbytes + table.rank.nbytes) / 1e6,
        ballots_mb=ballots.values.nbytes / 1e6,
        fit_peak_mb=changed.fit_peak_mb,
        **_routed(router, synthetic),
        accuracy=_accuracy(router, synthetic),
        peak_mb=peak_memory(),
    )


def growth(rows: Sequence[Scale]) -> list[Figure]:
    """Is routing quick with many experts, does its time grow no faster than their number? What does a change cost?"""
    figures = [
        Figure(f"route one prompt of {TOKENS} tokens, {row.experts} experts", row.route_us, "µs", LIMIT, False)
        for row in rows
        if row.experts == AT
    ]
    for how, measure in (("", "route_us"), (" in a batch", "route_batch_us")):
        for few, many in pairwise(rows):
            times = getattr(many, measure) / getattr(few, measure)
            name = f"time of a prompt{how}, {few.experts:,} to {many.experts:,} experts"
            figures.append(Figure(name, times, "×", many.experts / few.experts, False))
    for row in rows:
        shares = {"closed form": row.closed_add_s / row.closed_fit_s, "default": row.add_s / row.fit_s}
        for router, share in shares.items():
            name = f"{router}, add an expert with the first route / fit; {row.experts:,} experts"
            figures.append(Figure(name, share, "×", MAX_CHANGE[router] if row.experts >= AT else None, False))
    return figures


def _statistics(synthetic: Synthetic, count: int) -> dict[str, Statistics]:
    return {_name(domain): collect(synthetic.prompts(domain, TRAINING_PROMPTS)) for domain in range(count)}


def _name(domain: int) -> str:
    return f"expert {domain}"


def _kept(router: Router) -> Mapping[str, float]:
    """Saving and loading; and what a process needs that only routes."""
    with tempfile.TemporaryDirectory() as folder:
        whole, serving = Path(folder, "whole"), Path(folder, "serving")
        _, save_s = _timed(lambda: router.save(whole))
        _, load_s = _timed(lambda: Router.load(whole))
        router.save(serving, serving=True)
        script = (
            "import sys, ir3de; from ir3de_lab.benchmarks.measurement import peak_memory; "
            "ir3de.Router.load(sys.argv[1]).route('What is 12 times 7?'); print(peak_memory())"
        )
        return {
            "save_s": save_s,
            "load_s": load_s,
            "saved_mb": _megabytes(whole),
            "serving_mb": _megabytes(serving),
            "serving_peak_mb": float(_in_new_process(script, serving)),
        }


def _routed(router: Router, synthetic: Synthetic) -> Mapping[str, float]:
    """Microseconds a prompt: the fastest of several rounds over different prompts."""
    prompts = _of_length(router, synthetic)
    encode = router.tokenizer.encode
    decisions = [router.route(prompt) for prompt in prompts[:READ_DECISIONS]]
    actions: dict[str, tuple[int, Callable[[], object]]] = {
        "tokenizer_us": (len(prompts), lambda: [encode(prompt) for prompt in prompts]),
        "route_us": (len(prompts), lambda: [router.route(prompt).expert for prompt in prompts]),
        "route_batch_us": (len(prompts), lambda: [decision.expert for decision in router.route_batch(prompts)]),
        "confidence_us": (len(decisions), lambda: [decision.confidence for decision in decisions]),
        "ranking_us": (len(decisions), lambda: [decision.ranking for decision in decisions]),
    }
    rounds = side_by_side(*(action for _, action in actions.values()), rounds=ROUNDS)
    return {
        name: min(seconds) / count * 1e6 for (name, (count, _)), seconds in zip(actions.items(), rounds, strict=True)
    }


def _of_length(router: Router, synthetic: Synthetic) -> list[str]:
    """Different held-out prompts, the domains taking turns, each with the next ones behind it, cut after 67 tokens."""
    made = []
    for number in range(TIMED_PROMPTS):
        round_, domain = divmod(number, len(router.experts))
        text = " ".join(synthetic.prompts(domain, 4 + round_, held_out=True)[-4:])
        made.append(first_tokens(text, TOKENS))
    return made


def _accuracy(router: Router, synthetic: Synthetic) -> float:
    """The mean over domains, evenly spaced if there are too many for all."""
    domains = range(0, len(router.experts), max(1, len(router.experts) * HELD_OUT_PROMPTS // MOST_HELD_OUT))
    recalls = []
    for domain in domains:
        decisions = router.route_batch(synthetic.prompts(domain, HELD_OUT_PROMPTS, held_out=True))
        recalls.append(fmean(decision.best == _name(domain) for decision in decisions))
    return fmean(recalls)


def _timed(action: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[Any, float]:
    begin = clock()
    result = action()
    return result, clock() - begin


def _megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def _in_new_process(script: str, *arguments: object) -> str:
    command = [sys.executable, "-P", "-c", script, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
