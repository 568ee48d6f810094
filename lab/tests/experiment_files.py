"""Small raw files of the experiments, made by hand or by lot."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ir3de_lab.experiments import choices as choice_files
from ir3de_lab.experiments import matrix as matrix_files
from ir3de_lab.experiments.choices import Choices, Traits
from ir3de_lab.experiments.matrix import Matrix
from ir3de_lab.experiments.settings import load

DOMAINS = ("coding", "math", "physics", "history", "philosophy")
LINEAR, ENCODER = Traits(False, False, True), Traits(True, True, False)


def matrix_of(
    metric: str, rows: Sequence[tuple[str, float, Sequence[float]]], *, groups: Sequence[str] | None = None, **more: Any
) -> Matrix:
    """Outcomes from (domain, weight, values) of each item; experts are the domains, what is left over are extras."""
    domains = tuple(dict.fromkeys(domain for domain, _, _ in rows))
    extras = ("average", "base")[: len(rows[0][2]) - len(domains)]
    return Matrix(
        more.pop("setting", "by-hand"),
        metric,
        domains,
        domains,
        {domain: domain for domain in domains},
        tuple(f"{domain}/{place:05d}" for place, (domain, _, _) in enumerate(rows)),
        np.array([domains.index(domain) for domain, _, _ in rows]),
        tuple(groups or [""] * len(rows)),
        np.array([weight for _, weight, _ in rows], float),
        np.array([values for _, _, values in rows], float),
        extras,
        **more,
    )


def random_matrix(
    metric: str, seed: int = 0, *, items: int = 12, domains: Sequence[str] = DOMAINS, **more: Any
) -> Matrix:
    """Outcomes drawn by lot, the own expert's the better ones."""
    rng = np.random.default_rng(seed)
    rows = []
    for place, domain in enumerate(domains):
        for _ in range(items):
            weight = float(rng.integers(1, 4))
            if metric == "perplexity":
                values = weight * (2 + rng.random(len(domains) + 2))
                values[place] -= weight
            else:
                chance = np.full(len(domains) + 2, 0.2)
                chance[place] = 0.8
                values = rng.binomial(int(weight), chance).astype(float)
            rows.append((domain, weight, values.tolist()))
    return matrix_of(metric, rows, **more)


def chosen(matrix: Matrix, wrong: float, seed: int = 0) -> np.ndarray[Any, Any]:
    """Own experts, but for a share of the items that goes to the next one."""
    rng = np.random.default_rng(seed)
    missed = rng.random(len(matrix.items)) < wrong
    return np.where(missed, (matrix.own_expert + 1) % len(matrix.experts), matrix.own_expert)


def write_results(folder: Path, matrix: Matrix, routers: Sequence[Choices]) -> Path:
    """A setting's folder."""
    matrix_files.write(matrix, folder / "outcomes.jsonl.xz")
    for router in routers:
        choice_files.write(router, matrix, folder / "choices")
    return folder


def routers_for(matrix: Matrix) -> list[Choices]:
    """One router of every kind that tables and figures know, with curves over every axis."""
    fast: dict[str, Any] = {"fit_seconds": 1.5, "route_us": 17.0, "parameters": 28_224, "size_bytes": 2_700_000}
    slow: dict[str, Any] = {**fast, "route_us": 900.0, "about": {"accelerator": "NVIDIA H200"}}
    made = [
        Choices("ir3de", "ours", "clean", chosen(matrix, 0.05, 1), LINEAR, **fast),
        Choices("naive Bayes", "rivals", "clean", chosen(matrix, 0.1, 2), LINEAR, **fast),
        Choices("BERT-router (MiniLM-L6)", "rivals", "clean", chosen(matrix, 0.08, 3), ENCODER, **slow),
    ]
    for protocol, tail in (("clean", ""), ("authors", ", authors' protocol")):
        for variant, share in (("avg", 0.3), ("all", 0.4)):
            name = f"IR3DE-{variant} (authors' code){tail}"
            made.append(Choices(name, "paper", protocol, chosen(matrix, share, 4), LINEAR, **fast))
        wrong = {1: 0.5, 10: 0.2 if protocol == "clean" else 0.0, 50: 0.3}  # what is fitted on the test is hard to beat
        made += _series(matrix, "IR3DE (authors' code)" + tail, "k", wrong, "paper", protocol)
    made += _series(matrix, "kNN, CLS (MiniLM-L6)", "neighbours", {1: 0.3, 5: 0.2, 10: 0.1}, "rivals")
    made += _series(matrix, "MoDEM-small, frozen (MiniLM-L6)", "rate", {1e-3: 0.5, 1e-1: 0.2}, "rivals")
    for axis in ("prompts", "tokens", "strength"):
        for name in ("ir3de", "naive Bayes"):
            made += _series(matrix, name, axis, {3: 0.4, 30: 0.2, 300: 0.1}, "ours")
    return made


def _series(
    matrix: Matrix, name: str, axis: str, wrong: Mapping[float, float], family: str, protocol: str = "clean"
) -> list[Choices]:
    return [
        Choices(
            f"{name}, {axis}={at:g}", family, protocol, chosen(matrix, share, 7), LINEAR,
            route_us=30.0, series=name, axis=axis, at=float(at),
        )
        for at, share in wrong.items()
    ]  # fmt: skip


def write_rest(folder: Path, experts: Sequence[str]) -> None:
    """Losses, experts that come and go, and facts."""
    losses = {expert: {"losses": [3.0 - step / 10 for step in range(1, 9)], "seconds": 27.0} for expert in experts}
    (folder / "training.json").write_text(json.dumps({"experts": losses}))
    step = {"experts": list(experts), "accuracy": 97.5, "seconds": 0.3, "retrain_seconds": 60.0, "retrained": "MoDEM",
            "identical": True, "chosen": False}  # fmt: skip
    steps = [{"action": action, "expert": experts[-1], **step} for action in ("add", "remove")]
    (folder / "dynamic.json").write_text(json.dumps({"rows": steps}))
    (folder / "decentralised.json").write_text(json.dumps({"identical": True, "bytes_sent": 1_234_567}))


def damaged(path: Path, change: Callable[[list[Any]], None]) -> None:
    """Change the lines of a file of outcomes."""
    lines = [json.loads(line) for line in lzma.decompress(path.read_bytes()).decode().splitlines()]
    change(lines)
    path.write_bytes(lzma.compress("\n".join(map(json.dumps, lines)).encode()))


def two_settings(folder: Path) -> Path:
    """Results of two settings, the second with groups and reference answers."""
    clm = random_matrix("perplexity", setting="clm")
    write_rest(write_results(folder / "clm", clm, routers_for(clm)), clm.experts)
    domains = load("reasoning").domains
    groups = [name if domain == "multilingual" else "" for domain in domains for name in ("fr", "de") * 6]
    reasoning = random_matrix("score", 1, setting="reasoning", domains=domains, groups=groups)
    write_results(folder / "reasoning", reasoning, routers_for(reasoning))
    reference = random_matrix("perplexity", 2, setting="reasoning", domains=domains)
    matrix_files.write(reference, folder / "reasoning" / "reference.jsonl.xz")
    return folder
