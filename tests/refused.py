"""What tests of refusals have in common."""

import pickle
from collections.abc import Callable

import pytest

import tiny
from ir3de import Router, Statistics, collect
from ir3de.errors import IR3DEError


def refusal(kind: type[IR3DEError], action: Callable[..., object], *arguments: object, **options: object) -> str:
    """The message of the error that the action must end in."""
    with pytest.raises(kind) as caught:
        action(*arguments, **options)
    return str(caught.value)


def tiny_fit(domains: object, **options: object) -> Router:
    return Router.fit(domains, embedding=tiny.embedding(), **options)


def counted(texts: list[str], **options: object) -> Statistics:
    return collect(texts, embedding=tiny.embedding(), **options)


class Unchanged:
    """A router that must be, after what happens inside the block, to the last bit what it was."""

    def __enter__(self) -> Router:
        self.router = tiny.router()
        self.expected = pickle.loads(pickle.dumps(self.router))  # shares no number with it
        self.statistics = dict(self.router.statistics)
        return self.router

    def __exit__(self, *exception: object) -> None:
        assert tiny.same_table(self.router, self.expected)
        assert dict(self.router.statistics) == self.statistics
