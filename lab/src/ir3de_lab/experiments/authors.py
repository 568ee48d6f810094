"""The authors' protocol: what their published code counts and lets vote, padding and leak included, each as a field.

Prompts of the fit are padded with the end token; without a mask, padding is counted like text. Test prompts that are
asked one by one are not padded; those that are asked in batches are, and their padding votes like text. Where answers
are chosen among options, each option is routed by itself, behind its question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from ir3de import Router
from ir3de.embedding import Embedding
from ir3de.errors import InputError
from ir3de.scorers import TokenRidge
from ir3de.selectors import Average, EntropyTopK
from ir3de.statistics import Statistics
from ir3de_lab.experiments.contenders import ADDITIVE, Entry, Facts, Texts, as_fitted, selections, timed
from ir3de_lab.experiments.material import Item
from ir3de_lab.experiments.matrix import Places
from ir3de_lab.experiments.settings import Protocol

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
        domain: _prompts(test[domain] if domain in protocol.fit_on_test else texts, protocol)
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
        yield Entry(
            called, "paper", ADDITIVE, as_fitted(chosen), counting + solving, series, axis, at, protocol=name,
            route_items=partial(_route_items, chosen, pad, protocol),
        )  # fmt: skip


def padding_id(embedding: Embedding, protocol: Protocol) -> int:
    """The token that pads."""
    found = embedding.tokenizer.reference.token_to_id(protocol.padding)
    if found is None:
        raise InputError(f"the tokenizer of '{embedding.name}' has no token '{protocol.padding}' to pad with")
    return int(found)


def _prompts(texts: Sequence[str], protocol: Protocol) -> list[str]:
    """The first so many texts, gone through again where there are fewer and the protocol says so."""
    number = protocol.prompts or len(texts)
    return [texts[i % len(texts)] for i in range(number if protocol.repeat else min(number, len(texts)))]


def padded_fit(texts: Sequence[str], embedding: Embedding, pad: int, protocol: Protocol) -> list[Ids]:
    """What is counted of each text of the fit; texts of a batch that is not full may be left out."""
    number = len(texts)
    if protocol.drop_last and number >= protocol.fit_batch:
        number -= number % protocol.fit_batch
    ids = _encoded(texts[:number], embedding, protocol)
    return [_padded(part, protocol.fit_width, pad) for part in ids] if protocol.fit_width else ids


def padded_test(items: Sequence[Item], embedding: Embedding, pad: int, protocol: Protocol) -> tuple[list[Ids], Places]:
    """What is routed of the items, domain by domain, and the place of the item that each belongs to."""
    ids: list[Ids] = []
    places: list[int] = []
    for domain in dict.fromkeys(item.domain for item in items):
        asked = [
            (place, text)
            for place, item in enumerate(items)
            if item.domain == domain
            for text in _asked(item, protocol.options.get(domain))
        ]
        found = _encoded([text for _, text in asked], embedding, protocol)
        together = protocol.test_batch.get(domain, 1)
        for begin in range(0, len(found), together):
            batch = found[begin : begin + together]
            width = protocol.test_width or 1 + max(len(part) for part in batch)
            ids += [_padded(part, width, pad) for part in batch]
        places += [place for place, _ in asked]
    return ids, np.array(places, np.intp)


def _asked(item: Item, form: str | None) -> list[str]:
    """The texts that are routed of an item: its prompt or, in that form, each of its options behind it."""
    if form is None:
        return [item.text]
    options: Mapping[str, str] = item.row["options"]
    return [form.replace("{text}", item.text).replace("{option}", options[letter]) for letter in sorted(options)]


def _encoded(texts: Sequence[str], embedding: Embedding, protocol: Protocol) -> list[Ids]:
    if not texts:
        return []
    flat, lengths = embedding.tokenizer.encode_batch(list(texts))
    return [part[: protocol.cap] for part in np.split(flat, np.cumsum(lengths.astype(np.int64))[:-1])]


def _padded(ids: Ids, width: int, pad: int) -> Ids:
    """Cut or padded to the width, less the last token, which is only predicted."""
    return np.concatenate([ids, np.full(max(0, width - len(ids)), pad, ids.dtype)])[: width - 1]


def _counted(texts: Sequence[str], embedding: Embedding, pad: int, protocol: Protocol) -> Statistics:
    ids = padded_fit(texts, embedding, pad, protocol)
    histogram = np.bincount(np.concatenate(ids).astype(np.intp), minlength=embedding.vocabulary_size)
    return Statistics(embedding.fingerprint, len(ids), histogram.astype(np.int64), None)


def _route_items(router: Router, pad: int, protocol: Protocol, items: Sequence[Item]) -> tuple[list[str], Facts]:
    """The expert of each item: where several texts of it are routed, the one that most of them are sent to."""
    ids, places = padded_test(items, router.embedding, pad, protocol)
    position = {name: place for place, name in enumerate(router.experts)}
    votes = np.zeros((len(items), len(position)), np.intp)
    for place, decision in zip(places, router.route_ids(ids), strict=True):
        votes[place, position[decision.best]] += 1
    several = votes.sum(axis=1) > 1
    divided = int((votes.max(axis=1) < votes.sum(axis=1)).sum())
    facts = {"options": {"items": int(several.sum()), "divided": divided}} if several.any() else {}
    return [router.experts[place] for place in votes.argmax(axis=1)], facts
