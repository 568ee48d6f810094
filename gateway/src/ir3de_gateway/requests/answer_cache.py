"""The response cache: answers by the key of their request. The least recently used ones are dropped."""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from time import monotonic
from typing import Any, NamedTuple

from ir3de_gateway.config.document import Cache
from ir3de_gateway.headers import HeaderList, text

ENTRY_BYTES = 500  # that an entry takes in addition to its answer
SMALL_BYTES = 65_536  # of a request whose JSON is compared, whatever its spacing; larger ones are compared byte by byte
_max_age = re.compile(r"max-age\s*=\s*\"?(\d{1,9})")


class CachedAnswer(NamedTuple):
    """An answer in the client's format, without provenance."""

    content: bytes
    kind: bytes  # its content type
    is_stream: bool
    adds_usage: bool  # it has its usage although the client did not request it
    cached_at: float


class AnswerCache:
    """The answers of one worker. They belong to one snapshot: another router or configuration begins with none.

    >>> cache = AnswerCache(Cache(ttl=60), clock=lambda: 0.0)
    >>> cache.put(b"key", CachedAnswer(b"{}", b"application/json", False, False, 0.0)); cache.get(b"key").content
    b'{}'
    """

    def __init__(self, config: Cache, clock: Callable[[], float] = monotonic) -> None:
        self.config, self.clock = config, clock
        self._answers: OrderedDict[bytes, CachedAnswer] = OrderedDict()
        self._owner: weakref.ref[Any] | None = None
        self.size = 0  # in bytes

    def set_owner(self, owner: object) -> None:
        """Drop the answers of another owner."""
        if self._owner is None or self._owner() is not owner:
            self.clear()
            self._owner = weakref.ref(owner)

    def get(self, key: bytes, max_age: float | None = None) -> CachedAnswer | None:
        """An answer that is not too old."""
        found = self._answers.get(key)
        if found is None:
            return None
        age = self.get_age(found)
        if age >= self.config.ttl:
            self._drop(key)
            return None
        if max_age is not None and age > max_age:
            return None
        self._answers.move_to_end(key)
        return found

    def put(self, key: bytes, answer: CachedAnswer) -> None:
        """Cache an answer, unless it is too large."""
        if len(answer.content) > self.config.answer_bytes or len(answer.content) + ENTRY_BYTES > self.config.max_bytes:
            return
        self._drop(key)
        self._answers[key] = answer
        self.size += len(answer.content) + ENTRY_BYTES
        while self.size > self.config.max_bytes:
            self._drop(next(iter(self._answers)))

    def get_age(self, answer: CachedAnswer) -> float:
        """Seconds since the answer was given."""
        return max(0.0, self.clock() - answer.cached_at)

    def clear(self) -> None:
        self._answers.clear()
        self.size = 0

    def _drop(self, key: bytes) -> None:
        found = self._answers.pop(key, None)
        if found is not None:
            self.size -= len(found.content) + ENTRY_BYTES


class CacheControl(NamedTuple):
    """The header `cache-control` of a request."""

    may_read: bool = True
    may_store: bool = True
    max_age: float | None = None

    @classmethod
    def from_headers(cls, headers: Mapping[bytes, bytes]) -> CacheControl:
        """
        >>> CacheControl.from_headers({b"cache-control": b"no-cache"})
        CacheControl(may_read=False, may_store=True, max_age=None)
        """
        value = text(headers.get(b"cache-control", b"")).lower()
        if "no-store" in value:
            return cls(may_read=False, may_store=False)
        age = _max_age.search(value)
        return cls("no-cache" not in value, True, None if age is None else float(age[1]))


def build_key(parts: Iterable[str], headers: HeaderList, is_compared: Callable[[bytes], bool], body: bytes) -> bytes:
    """The key of a request: equal for requests that are equal in everything that an answer depends on."""
    compared = sorted((name, value) for name, value in headers if is_compared(name))
    digest = hashlib.sha256()
    for part in (*(one.encode(errors="replace") for one in parts), *(b"%b:%b" % pair for pair in compared)):
        digest.update(b"%d:%b," % (len(part), part))
    digest.update(b";" + _normalise(body))
    return digest.digest()


def _normalise(body: bytes) -> bytes:
    """The request without spacing, its fields in one order. Inside of them the order stays: models may read it.

    An object becomes a list of its members, in an object of its own. So names that occur twice do so here, too.
    """
    if len(body) > SMALL_BYTES:
        return body
    try:
        values = json.loads(body, object_pairs_hook=lambda pairs: {"": pairs}, parse_float=lambda digits: {"": digits})
        values[""].sort(key=itemgetter(0))  # which leaves equal names in their order
    except (ValueError, TypeError, KeyError, RecursionError):
        return body
    return json.dumps(values, separators=(",", ":")).encode()
