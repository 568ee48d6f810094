"""What routers cost as they grow: seconds of a fit, microseconds a prompt and bytes kept, along three axes.

    domains   the same training texts, cut into more and more domains
    texts     more training texts of the setting's own domains
    tokens    longer and longer prompts to route

At each point all routers take turns, round by round, and the median counts: what is compared is one router's figure
with another's of the same run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ir3de import Router
from ir3de.embedding import Embedding
from ir3de.errors import ArtifactError
from ir3de.scorers import TokenRidge
from ir3de.selectors import EntropyTopK
from ir3de.statistics import collect
from ir3de_lab import files
from ir3de_lab.benchmarks.protocol import first_tokens
from ir3de_lab.experiments.contenders import DEFAULT, Texts, as_fitted, timed
from ir3de_lab.rivals import Fitted
from ir3de_lab.rivals.bag_of_words_mlp import BagOfWordsMLP
from ir3de_lab.rivals.naive_bayes import NaiveBayes
from ir3de_lab.rivals.tfidf_logistic import TfidfLogistic

KIND, VERSION = "ir3de.complexity", 1
COMPLEXITY = "complexity.json"
AXES = {"domains": "domains", "texts": "training texts of a domain", "tokens": "tokens of a prompt"}
PAPER_TOP = "IR3DE, k=10 (authors' code)"
NEEDED = frozenset({"axis", "at", "router", "training_tokens", "fit_seconds", "route_us", "parameters", "size_bytes"})


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    parts: tuple[int, ...] = (1, 2, 4, 8)  # that each domain is cut into
    texts: tuple[int, ...] = (25, 50, 100, 200)  # of each domain
    tokens: tuple[int, ...] = (8, 32, 128, 512, 1_024)  # of a prompt
    usual: int = 100  # texts of each domain, where another axis grows
    length: int = 128  # tokens of a text or prompt, where another axis grows
    asked: int = 100  # prompts
    rounds: int = 3


def fit_ir3de(texts: Texts) -> Fitted:
    """This package's default."""
    return as_fitted(Router.fit(texts))


def fit_paper(texts: Texts) -> Fitted:
    """The paper's router in the form of its authors' code."""
    counted = {domain: collect(found, prompt_sums=False) for domain, found in texts.items()}
    return as_fitted(Router.fit(counted, scorer=TokenRidge.authors(), selector=EntropyTopK.authors(10)))


ROUTERS: dict[str, Callable[[Texts], Fitted]] = {
    DEFAULT: fit_ir3de,
    PAPER_TOP: fit_paper,
    "naive Bayes": NaiveBayes(0.1).fit,
    "TF-IDF + logistic regression": TfidfLogistic().fit,
    "MLP-router": BagOfWordsMLP().fit,
}


def measure(train: Texts, test: Sequence[str], size: Size | None = None) -> list[dict[str, Any]]:
    """A row for each axis, point and router."""
    size = size or Size()
    most = max(size.usual, *size.texts)
    short = {d: [first_tokens(text, size.length) for text in found[:most]] for d, found in train.items()}
    prompts = [first_tokens(text, max(size.tokens)) for text in spread(test, size.asked)]
    usual = {domain: found[: size.usual] for domain, found in short.items()}
    asked = [first_tokens(text, size.length) for text in prompts]
    for fit in ROUTERS.values():  # warm up: what is imported and read once belongs to no point
        fit({domain: found[:5] for domain, found in usual.items()}).route(asked[:5])
    rows = []
    for parts in size.parts:
        cut = cut_up(usual, parts)
        rows += _take_turns("domains", len(cut), cut, asked, size.rounds)
    for number in size.texts:
        few = {domain: found[:number] for domain, found in short.items()}
        rows += _take_turns("texts", min(map(len, few.values())), few, asked, size.rounds)
    fitted = {name: timed(partial(fit, usual)) for name, fit in ROUTERS.items()}
    for length in size.tokens:
        asked = [first_tokens(text, length) for text in prompts]
        rows += _ask("tokens", length, usual, fitted, asked, size.rounds)
    return rows


def spread(texts: Sequence[str], number: int) -> list[str]:
    """So many texts, from all over the list."""
    step = max(1, len(texts) // number)
    return list(texts[::step][:number])


def cut_up(texts: Texts, parts: int) -> dict[str, list[str]]:
    """Every domain in as many parts, each a domain of its own.

    >>> cut_up({"law": ["a", "b", "c"]}, 2)
    {'law 1': ['a', 'c'], 'law 2': ['b']}
    """
    return {f"{d} {part + 1}": list(found[part::parts]) for d, found in texts.items() for part in range(parts)}


def _take_turns(axis: str, at: int, texts: Texts, asked: Sequence[str], rounds: int) -> list[dict[str, Any]]:
    """Fit and ask every router in each round."""
    seconds: dict[str, list[float]] = {name: [] for name in ROUTERS}
    fitted: dict[str, tuple[Fitted, float]] = {}
    for _ in range(rounds):
        for name, fit in ROUTERS.items():
            fitted[name] = timed(partial(fit, texts))
            seconds[name].append(fitted[name][1])
    medians = {name: (found, median(seconds[name])) for name, (found, _) in fitted.items()}
    return _ask(axis, at, texts, medians, asked, rounds)


def _ask(
    axis: str,
    at: int,
    texts: Texts,
    fitted: Mapping[str, tuple[Fitted, float]],
    asked: Sequence[str],
    rounds: int,
) -> list[dict[str, Any]]:
    tokens = sum(len(ids) for found in texts.values() for ids in map(Embedding.default().encode, found))
    microseconds: dict[str, list[float]] = {name: [] for name in fitted}
    for _ in range(rounds):
        for name, (router, _) in fitted.items():
            _, seconds = timed(partial(router.route, asked))
            microseconds[name].append(1e6 * seconds / len(asked))
    return [
        {
            "axis": axis,
            "at": at,
            "router": name,
            "training_tokens": tokens,
            "fit_seconds": float(f"{seconds:.4g}"),
            "route_us": float(f"{median(microseconds[name]):.4g}"),
            "parameters": router.parameters,
            "size_bytes": router.size_bytes,
        }
        for name, (router, seconds) in fitted.items()
    ]


def write(rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any], setting: str, folder: Path) -> Path:
    """Keep the rows, and what they were measured on."""
    files.make_folder(folder)
    path = folder / COMPLEXITY
    document = {"kind": KIND, "version": VERSION, "setting": setting, "about": dict(about), "rows": list(rows)}
    files.write_json(path, document)
    return path


def read(folder: Path) -> Mapping[str, Any]:
    """What was measured; nothing where there is no file."""
    path = folder / COMPLEXITY
    if not path.is_file():
        return {}
    document = files.read_json(path, kind=KIND, version=VERSION)
    rows = document.get("rows")
    if (
        not isinstance(rows, list)
        or not rows
        or not all(isinstance(row, dict) and row.keys() >= NEEDED for row in rows)
    ):
        raise ArtifactError(f"{path} is damaged: expected rows of {', '.join(sorted(NEEDED))}. Make it again")
    if strange := next((row["axis"] for row in rows if row["axis"] not in AXES), None):
        raise ArtifactError(f"{path} has a row over {strange!r}; known are {', '.join(AXES)}. Make it again")
    return document


def points(document: Mapping[str, Any], axis: str) -> Iterator[tuple[float, dict[str, Mapping[str, Any]]]]:
    """The rows of an axis, point by point: where it is, and each router's row there."""
    rows = [row for row in document.get("rows", ()) if row["axis"] == axis]
    for at in sorted({row["at"] for row in rows}):
        yield at, {row["router"]: row for row in rows if row["at"] == at}
