"""A fit at the size of the largest embeddings, 256,000 tokens of 4,096 numbers: time, memory, an expert that joins.

Matrix and counts are made up: no figure here depends on what they say. Needs numpy and safetensors; to be run where
there is no command line as well: `python -m ir3de_lab.benchmarks.big --device cuda --save big.json`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import Router
from ir3de.embedding import Embedding
from ir3de.scorers import Arithmetic, Blend, NumpyArithmetic, TokenRidge, using
from ir3de.statistics import Statistics, load_statistics
from ir3de_lab.benchmarks.big_parts import BLOCK, QUICK, Size, load, make, open_embedding
from ir3de_lab.benchmarks.measurement import Figure, Watch, circumstances, peak_memory

TOLERANCE = 1e-8  # of the largest score: how far scores on a device may be from numpy's, docs/big-embeddings.md
BACKGROUND = ("a", "b")  # the embedding is made up and may have few rows: these tokens are among them


def measure(size: Size, *, device: str | None = None, rounds: int = 1) -> list[Figure]:
    """Every figure at this size, in one run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(size, folder)
        embedding, domains = load(size, folder)
        figures = [*joining(size, embedding, domains, rounds), *memory(size, folder)]
        return figures if device is None else [*figures, *on_device(device, embedding, domains[: size.experts], rounds)]


# what is measured -----------------------------------------------------------------------------------------------


def joining(size: Size, embedding: Embedding, domains: Sequence[Statistics], rounds: int) -> list[Figure]:
    """Fit five experts, let a sixth join, and fit all six, beside the bare product over the same rows."""
    names = [f"expert {number}" for number in range(len(domains))]
    seen = [int(np.count_nonzero(domain.histogram)) for domain in domains]
    union = int(np.count_nonzero(np.any([domain.histogram for domain in domains[:-1]], axis=0)))
    watch, same = Watch(), True
    for _ in range(rounds):
        with watch("product"):
            bare_product(union, embedding)
        router = _fitted(names[:-1], domains, embedding, watch, "five")
        with watch("join"):
            router.add(names[-1], replace(domains[-1]))
        changed = router.compiled.table
        with watch("leave"):
            router.remove(names[-1])
        six = _fitted(names, domains, embedding, watch, "six").compiled.table
        same = same and np.array_equal(changed.scores, six.scores) and np.array_equal(changed.rank, six.rank)
    took = watch.medians
    raw = {**asdict(size), "rows_of_each": seen, "rows_of_five": union, **watch.to_dict(), "same_bits": same}
    C, joined = size.experts, took["join"] if same else float("inf")
    ratios = {
        f"fit of {C} experts / one bare product over their rows": (took["five"] / took["product"], None),
        f"an expert joins {C} / one bare product over their rows": (joined / took["product"], None),
        f"an expert joins {C} / a fit of {C + 1}, same bits": (joined / took["six"], 1.0),
        f"an expert leaves {C + 1} / a fit of {C}": (took["leave"] / took["five"], 1.0),
    }
    return [Figure(name, ratio, "×", bar, False, raw) for name, (ratio, bar) in ratios.items()]


def memory(size: Size, folder: Path) -> list[Figure]:
    """Peak memory of fits from statistics, in a process of its own, beside the stated bound."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "ir3de_lab.benchmarks.big",
        "--peak-of",
        str(folder),
        json.dumps(asdict(size)),
    ]
    peaks = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    bound, whole = size.bound / 2**20, size.vocabulary * size.width * 4 / 2**20  # as `peak_memory` counts them
    raw = {**peaks, "bound_mb": bound, "matrix_as_float32_mb": whole}
    return [
        Figure(f"peak memory of a fit ({scorer}) / the stated bound", peaks[scorer] / bound, "×", 1.0, False, raw)
        for scorer in peaks
    ]


def on_device(device: str, embedding: Embedding, domains: Sequence[Statistics], rounds: int) -> list[Figure]:
    """The product of one expert, the solve, and a whole fit, by numpy and on the device, taking turns."""
    from ir3de.scorers import TorchArithmetic

    rows = embedding.rows
    both: dict[str, Arithmetic] = {"numpy": NumpyArithmetic(), "torch": TorchArithmetic(device)}
    counts = domains[0].histogram[:, None].astype(np.float64)
    both["torch"].product(rows, np.where(np.arange(len(counts))[:, None] < BLOCK, counts, 0.0))  # warm up
    G = both["numpy"].product(rows, counts, targets=False)
    steps: dict[str, Callable[[Arithmetic], npt.NDArray[np.float64]]] = {
        "product of one expert": lambda by: by.product(rows, counts, targets=False),
        "solve": lambda by: by.solve(G.copy(), G[:, :5].copy(), 1e-2 * float(np.trace(G)) / len(G)),
        f"whole fit of {len(domains)} experts": lambda by: _scores(by, domains, embedding),
    }
    figures, raw = [], {}
    for what, step in steps.items():
        watch, found = Watch(), {}
        for _ in range(rounds):
            for name, by in both.items():
                with watch(name):
                    found[name] = step(by)
        largest = float(np.abs(found["numpy"]).max())
        apart = float(np.abs(found["torch"] - found["numpy"]).max()) / largest
        raw = {**watch.to_dict(), "largest_difference_of_the_largest": apart}
        ratio = watch.medians["numpy"] / watch.medians["torch"]
        figures.append(Figure(f"numpy / torch on {device}: {what}", ratio, "×", None, True, raw))
    name = f"torch on {device}: largest difference of scores / {TOLERANCE:g} of the largest score"
    return [*figures, Figure(name, apart / TOLERANCE, "×", 1.0, False, raw)]


def _fitted(
    names: Sequence[str], domains: Sequence[Statistics], embedding: Embedding, watch: Watch, what: str
) -> Router:
    fresh = dict(zip(names, map(replace, domains), strict=False))  # nothing is remembered of these
    with watch(what):
        return Router.fit(fresh, embedding=embedding, scorer=TokenRidge(), background=BACKGROUND)


def _scores(by: Arithmetic, domains: Sequence[Statistics], embedding: Embedding) -> npt.NDArray[np.float64]:
    with using(by):
        return TokenRidge().scores([replace(domain) for domain in domains], embedding.rows)


def bare_product(rows: int, embedding: Embedding) -> None:
    """XᵀX over so many rows of [x, 1] in float64, and nothing else."""
    X = np.ones((BLOCK, embedding.width + 1))
    X[: len(embedding.rows), :-1] = embedding.rows[:BLOCK]
    for begin in range(0, rows, BLOCK):
        part = X[: min(BLOCK, rows - begin)]
        part.T @ part


# without the command line ---------------------------------------------------------------------------------------


def peaks(size: Size, folder: Path) -> dict[str, float]:
    """The most memory this process has had, in megabytes, after a fit by each scorer."""
    embedding = open_embedding(size, folder)
    domains = {str(number): load_statistics(folder / f"{number}.stats") for number in range(size.experts)}
    found = {}
    for scorer in (TokenRidge(), Blend()):
        Router.fit(domains, embedding=embedding, scorer=scorer, background=BACKGROUND)
        found[type(scorer).__name__] = peak_memory()
    return found


def document(figures: Sequence[Figure], device: str | None) -> dict[str, Any]:
    """The figures with what they were measured on."""
    around = circumstances()
    if device is not None and device.startswith("cuda"):
        import torch

        around["accelerator"] = torch.cuda.get_device_name(device)
    return {"circumstances": around, "figures": [figure.to_dict() for figure in figures]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ir3de_lab.benchmarks.big", description=__doc__)
    parser.add_argument("--vocabulary", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--device")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--peak-of", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak_of:
        folder, size = given.peak_of
        sys.stdout.write(json.dumps(peaks(Size(**json.loads(size)), Path(folder))))
        return
    size = sized(given.vocabulary, given.width, quick=given.quick)
    figures = measure(size, device=given.device, rounds=given.rounds)
    for figure in figures:
        sys.stdout.write(f"{figure.value:12.4g} {figure.unit}  {figure.name}\n")
    if given.save is not None:
        given.save.write_text(json.dumps(document(figures, given.device), ensure_ascii=False, indent=1) + "\n", "utf-8")


def sized(vocabulary: int | None, width: int | None, *, quick: bool) -> Size:
    usual = QUICK if quick else Size()
    return replace(usual, vocabulary=vocabulary or usual.vocabulary, width=width or usual.width)


if __name__ == "__main__":
    main()
