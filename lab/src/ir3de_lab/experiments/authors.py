"""The authors' protocol: what their published code counts and lets vote, padding and leak included, each as a field.

Prompts are cut, put into batches, and padded to the longest of their batch with the end token; without a mask, padding
is counted in the fit like text and votes like text. How a prompt is routed then depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import Router
from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.scorers import TokenRidge
from ir3de.selectors import Average, EntropyTopK
from ir3de.statistics import Statistics
from ir3de_lab.benchmarks.rivals import kept_by
from ir3de_lab.experiments.contenders import ADDITIVE, Entry, Texts, selections, timed
from ir3de_lab.experiments.settings import Protocol
from ir3de_lab.rivals import Fitted
from ir3de_lab.rivals.interface import Indices

Ids = npt.NDArray[np.unsignedinteger]


@dataclass(frozen=True)
class SinglePrecision(TokenRidge):
    """The same ridge with its Gram matrix added up and solved in float32."""

    bias: bool = True
    balanced: bool = False
    unit_columns: bool = True

    def scores(self, domains: Sequence[Statistics], embeddings: Any) -> npt.NDArray[np.float64]:
        E = np.concatenate([embeddings, np.ones((len(embeddings), 1))], axis=1).astype(np.float32)
        counts = np.stack([domain.histogram for domain in domains], axis=1).astype(np.float32)
        A = E.T @ (E * counts.sum(axis=1, keepdims=True))
        W = np.linalg.solve(A + np.float32(self.strength) * np.eye(len(A), dtype=np.float32), E.T @ counts)
        return np.asarray(E @ (W / np.linalg.norm(W[:-1], axis=0)), np.float64)


def entries(
    train: Texts, test: Texts, protocol: Protocol, embedding: Embedding | None = None, name: str = "authors"
) -> Iterator[Entry]:
    """Their router under their protocol, or under another that changes some of it, with every selector."""
    used = embedding or Embedding.default()
    pad = padding_id(used, protocol)
    given = {
        domain: _prompts(test[domain] if domain in protocol.fit_on_test else texts, protocol.prompts)
        for domain, texts in train.items()
    }
    counted, counting = timed(lambda: {d: _counted(texts, used, pad, protocol) for d, texts in given.items()})
    scorer = SinglePrecision() if protocol.precision == "float32" else TokenRidge.authors()
    first = Average(cap=protocol.cap)
    router, solving = timed(lambda: Router.fit(counted, scorer=scorer, selector=first, embedding=used))
    form = "authors' code, authors' protocol" if name == "authors" else f"authors' code, protocol {name}"
    for called, chosen, series, axis, at in selections(
        router, form, lambda k: replace(EntropyTopK.authors(k), cap=protocol.cap), "order"
    ):
        fitted = _padded_routes(chosen, pad, protocol)
        yield Entry(called, "paper", ADDITIVE, fitted, counting + solving, series, axis, at, protocol=name)


def padding_id(embedding: Embedding, protocol: Protocol) -> int:
    """The token that pads."""
    found = embedding.tokenizer.reference.token_to_id(protocol.padding)
    if found is None:
        raise InputError(f"the tokenizer of '{embedding.name}' has no token '{protocol.padding}' to pad with")
    return int(found)


def _prompts(texts: Sequence[str], number: int) -> list[str]:
    """The first so many texts, gone through again where there are fewer; all of them where none is named."""
    return [texts[i % len(texts)] for i in range(number)] if number else list(texts)


def padded(texts: Sequence[str], embedding: Embedding, pad: int, protocol: Protocol, *, drop_last: bool) -> list[Ids]:
    """Each text's token ids, cut, and padded to the longest of its batch where padding counts."""
    flat, lengths = embedding.tokenizer.encode_batch(list(texts))
    ids = [part[: protocol.cap] for part in np.split(flat, np.cumsum(lengths.astype(np.int64))[:-1])]
    made = []
    for begin in range(0, len(ids), protocol.batch):
        batch = ids[begin : begin + protocol.batch]
        if drop_last and len(batch) < protocol.batch and begin:
            break
        width = max(len(part) for part in batch) if protocol.count_padding else 0
        made += [np.concatenate([part, np.full(max(0, width - len(part)), pad, part.dtype)]) for part in batch]
    return made


def _counted(texts: Sequence[str], embedding: Embedding, pad: int, protocol: Protocol) -> Statistics:
    ids = padded(texts, embedding, pad, protocol, drop_last=protocol.drop_last)
    histogram = np.bincount(np.concatenate(ids).astype(np.intp), minlength=embedding.vocabulary_size)
    return Statistics(embedding.fingerprint, len(ids), histogram.astype(np.int64), None)


def _padded_routes(router: Router, pad: int, protocol: Protocol) -> Fitted:
    places: Mapping[str, int] = {name: place for place, name in enumerate(router.experts)}

    def choose(texts: list[str]) -> Indices:
        ids = padded(texts, router.embedding, pad, protocol, drop_last=False)
        return np.array([places[decision.best] for decision in router.route_ids(ids)], np.intp)

    return Fitted(router.experts, choose, *kept_by(router))
