"""Affinity: which replica a conversation prefers, so that the replica's cache still has the conversation's beginning.

Rendezvous hashing: each replica gets a number from a hash of its address and of the conversation's beginning, and the
highest number wins. All workers and all machines find the same replica, without shared state. If a replica goes, only
its own conversations move; if it comes back, only they return. The load is bounded: a replica that has `affinity` times
its share of the requests in flight gets no more, and the next one in the conversation's order does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Protocol, TypeVar

MIN_BOUND_REQUESTS = 4  # in flight: a replica may have as many in any case, because servers batch requests
_HASH_BYTES = 8
_DRAW_BITS = 52  # of a hash: so that a draw is exact, and never 0 or 1


class Placed(Protocol):
    """What affinity needs of a replica."""

    @property
    def address(self) -> bytes: ...

    @property
    def weight(self) -> float: ...


AnyReplica = TypeVar("AnyReplica", bound=Placed)


def hash_beginning(system: str, opening: str) -> bytes:
    """The beginning of a conversation as a hash: its system prompt and the user's first turn; empty without words.

    >>> hash_beginning("", "Can my landlord evict me?").hex(), hash_beginning("", "")
    ('72255cb99de67d8f', b'')
    """
    if not system and not opening:
        return b""
    text = f"{len(system)} {system}{opening}"
    return blake2b(text.encode(errors="replace"), digest_size=_HASH_BYTES).digest()


def rank(beginning: bytes, replicas: Sequence[AnyReplica]) -> list[AnyReplica]:
    """The replicas in the order in which a conversation prefers them; of equal weights, each is as often the first."""

    def draw(replica: Placed) -> tuple[float, bytes]:
        drawn = int.from_bytes(blake2b(replica.address, key=beginning, digest_size=_HASH_BYTES).digest())
        share = ((drawn >> 8 * _HASH_BYTES - _DRAW_BITS) + 0.5) / (1 << _DRAW_BITS)
        return -replica.weight / math.log(share), replica.address

    return sorted(replicas, key=draw, reverse=True)


def choose_near(
    beginning: bytes, replicas: Sequence[AnyReplica], in_flight: Mapping[AnyReplica, int], affinity: float
) -> AnyReplica:
    """The first replica in the conversation's order whose load is within its bound with one request more.

    The bounds together are at least the number of requests, so there always is one.
    """
    total, weights = sum(in_flight.values()) + 1, sum(replica.weight for replica in replicas)
    ranked = rank(beginning, replicas)
    for replica in ranked:
        bound = max(MIN_BOUND_REQUESTS, math.ceil(affinity * total * replica.weight / weights))
        if in_flight[replica] < bound:
            return replica
    return ranked[0]
