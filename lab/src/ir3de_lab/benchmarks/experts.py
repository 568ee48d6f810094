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
MAX_CHANGE = 0.1  # as a share of a fit, with so many experts


@dataclass(frozen=True)
class Scale:
    """What a router of so many experts costs, and how often it is right on held-out prompts."""

    experts: int
    collect_s: float  # all domains' texts to statistics
    fit_s: float  # from statistics
    add_s: float  # one more expert, and the first route after it
    save_s: float
    load_s: float
    table_mb: float
    ballots_mb: float
    saved_mb: float
    serving_mb: float
    fit_peak_mb: float  # collecting and fitting
    peak_mb: float  # and adding, saving and loading
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
    """Measure one number of experts in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "texts.json")
        path.write_text(json.dumps(list(texts)), encoding="utf-8")
        script = (
            "import json, sys; from pathlib import Path; from ir3de_lab.benchmarks.experts import measure_here; "
            "texts = json.loads(Path(sys.argv[2]).read_text(encoding='utf-8')); "
            "print(json.dumps(measure_here(int(sys.argv[1]), texts).to_dict()))"
        )
        return Scale(**json.loads(_in_new_process(script, count, path)))


def measure_here(count: int, texts: Sequence[str]) -> Scale:
    """The same in this process, whose peak of memory then includes all that it did before."""
    synthetic = Synthetic(texts)
    domains, collect_s = _timed(lambda: _statistics(synthetic, count + 1))
    last = next(reversed(domains))
    one_more = domains.pop(last)
    router, fit_s = _timed(lambda: Router.fit(domains))
    fit_peak = peak_memory()
    _, add_s = _timed(lambda: (router.add(last, one_more), router.route(texts[0]).confidence))
    router.remove(last)
    table, ballots = router.compiled.table, router.compiled.ballots
    return Scale(
        experts=count,
        collect_s=collect_s,
        fit_s=fit_s,
        add_s=add_s,
        **_kept(router),
        table_mb=(table.scores.nbytes + table.vote.nbytes + table.entropy.nbytes + table.rank.nbytes) / 1e6,
        ballots_mb=ballots.values.nbytes / 1e6,
        fit_peak_mb=fit_peak,
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
        name = f"add an expert with the first route / fit; {row.experts:,} experts"
        figures.append(Figure(name, row.add_s / row.fit_s, "×", MAX_CHANGE if row.experts >= AT else None, False))
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


def _timed(action: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = action()
    return result, time.perf_counter() - begin


def _megabytes(folder: Path) -> float:
    return sum(file.stat().st_size for file in folder.iterdir()) / 1e6


def _in_new_process(script: str, *arguments: object) -> str:
    command = [sys.executable, "-P", "-c", script, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, encoding="utf-8").stdout
