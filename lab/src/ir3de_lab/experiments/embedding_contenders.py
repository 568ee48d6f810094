"""The same two routers on other embeddings: the paper's -avg and this package's default, each fitted on every one.

An embedding that is not on the machine is left out with its reason, as an encoder is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ir3de import Router
from ir3de.embedding import Embedding
from ir3de.embedding.packaged_models import get_title, locate
from ir3de.errors import IR3DEError
from ir3de.scorers import TokenRidge
from ir3de.selectors import Average
from ir3de.statistics import collect
from ir3de_lab.experiments.choices import EMBEDDING
from ir3de_lab.experiments.contenders import ADDITIVE, DEFAULT, Entry, Facts, Texts, as_fitted, timed

SOURCES = ("default@2", "minilm-l6", "all-mpnet-base-v2", "qwen2.5-coder-0.5b", "multilingual")
TITLES = {"default@2": "default@2", "multilingual": "multilingual-e5-small, mapped"}
NOT_AT_HAND = {  # wanted, and not to be had: what the tables say of them
    "Gemma-3-270m": (
        "the packages that carry the model bring neither its terms of use nor a checksum of its makers, so they are "
        "not fetched; a copy of your own is named with --embedding"
    ),
    "model2vec": (
        "its folders are on a model hub, which the machine of the run could not reach; a copy of your own is named "
        "with --embedding"
    ),
}


def embeddings(
    train: Texts, leave_out: Callable[[str, str], None], more: Sequence[str] = (), sources: Sequence[str] = SOURCES
) -> Iterator[Entry]:
    """Both routers on every embedding that can be read here; of the others it is said why not."""
    for title, reason in NOT_AT_HAND.items():
        for name in names_on(title):
            leave_out(name, reason)
    for source in dict.fromkeys((*sources, *more)):
        title = TITLES.get(source) or get_title(source)
        try:
            embedding = Embedding.load(locate(source))
        except IR3DEError as error:
            for name in names_on(title):
                leave_out(name, str(error))
            continue
        yield from _on(train, embedding, title)


def names_on(title: str) -> tuple[str, str]:
    """What the two routers are called.

    >>> names_on("MiniLM-L6")
    ("IR3DE-avg (authors' code, embedding of MiniLM-L6)", 'ir3de (embedding of MiniLM-L6)')
    """
    return f"IR3DE-avg (authors' code, embedding of {title})", f"{DEFAULT} (embedding of {title})"


def _on(train: Texts, embedding: Embedding, title: str) -> Iterator[Entry]:
    about: Facts = {
        EMBEDDING: title,
        "vocabulary": embedding.vocabulary_size,
        "width": embedding.width,
        "fingerprint": embedding.fingerprint,
    }
    paper, ours = names_on(title)
    router, seconds = timed(partial(_fit_paper, train, embedding))
    yield Entry(paper, "paper", ADDITIVE, as_fitted(router), seconds, about=about)
    router, seconds = timed(partial(Router.fit, train, embedding=embedding))
    scorer = {"scorer": repr(router.scorer)}
    yield Entry(ours, "ours", ADDITIVE, as_fitted(router), seconds, about={**about, **scorer})


def _fit_paper(train: Texts, embedding: Embedding) -> Router:
    counted = {d: collect(texts, embedding=embedding, prompt_sums=False) for d, texts in train.items()}
    return Router.fit(counted, embedding=embedding, scorer=TokenRidge.authors(), selector=Average())
