"""Who has a response, a file or a batch that was made through the gateway, and for whose key.

These are pins: the state folder has them, and workers share them. The name of the key is a part of a pin's name, so
that the object of another key is as unknown as one that nobody has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests.pins import Pins

_FILES_OF_BATCH = ("input_file_id", "output_file_id", "error_file_id")


def scope_id(object_id: str, key: str) -> str:
    """An id as the pins know it: it is the key's own.

    >>> scope_id("resp_1", ""), scope_id("resp_1", "alice"), scope_id("alice\\nresp_1", "")
    ('resp_1', 'alice\\nresp_1', 'aliceresp_1')
    """
    plain = object_id.replace("\n", "")
    return f"{key}\n{plain}" if key else plain


def scope_session(session: str, key: str) -> str:
    """A session as the pins know it: the key's own, and never the name of a stored object, however a client calls it.

    >>> scope_session("response resp_1", "alice")
    'session alice\\nresponse resp_1'
    """
    return f"session {key}\n{session}"


class StoredObjects:
    """The stored objects of one key; `replica` is the address that answers now, of an expert with several."""

    def __init__(self, pins: Pins, key: str, seconds: float, replica: str = "") -> None:
        self._pins, self._key, self._seconds, self._replica = pins, key, seconds, replica

    def find(self, kind: str, object_id: str) -> str | None:
        """The expert that has an object; None if it is not known, or another key's."""
        return self._pins.get(f"{kind} {scope_id(object_id, self._key)}")

    def find_replica(self, kind: str, object_id: str) -> str:
        """The replica that has an object; empty if its expert has one address."""
        return self._pins.get(f"replica with {kind} {scope_id(object_id, self._key)}") or ""

    def remember(self, kind: str, object_id: str, expert: str) -> None:
        if not self._seconds:
            return
        name = f"{kind} {scope_id(object_id, self._key)}"
        if self._replica:
            self._pins.put_at_once(f"replica with {name}", self._replica, self._seconds)
        self._pins.put_at_once(name, expert, self._seconds)  # the next request may come to another worker

    def remember_charge(self, response_id: str, charge: Sequence[float]) -> None:
        """Remember what was charged for a response before its usage was known."""
        if self._seconds:
            self._pins.put_at_once(self._name_charge(response_id), json.dumps(charge), self._seconds)

    def take_charge(self, response_id: str) -> list[float] | None:
        """What was charged for a response, once: who takes it settles it."""
        found = self._pins.take(self._name_charge(response_id))
        return None if found is None else json.loads(found)

    def _name_charge(self, response_id: str) -> str:
        return f"charge of response {scope_id(response_id, self._key)}"

    def remember_answer(self, kind: str, answer: dict[str, Any], expert: str) -> None:
        """Remember the object that an answer is, and the files that it names."""
        for found_kind, object_id in list_objects(kind, answer):
            if self.find(found_kind, object_id) != expert:
                self.remember(found_kind, object_id, expert)

    def keep_own(self, kind: str, answer: dict[str, Any]) -> dict[str, Any]:
        """A list of objects without those of other keys: experts have one list for all."""
        own = [one for one in answer["data"] if isinstance(one, dict) and self.find(kind, str(one.get("id")))]
        ends = {"first_id": own[0]["id"] if own else None, "last_id": own[-1]["id"] if own else None}
        return {**answer, "data": own} | {name: value for name, value in ends.items() if name in answer}


def list_objects(kind: str, answer: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The kinds and ids of the objects that an answer tells of."""
    if isinstance(object_id := answer.get("id"), str):
        yield kind, object_id
    if kind == "batch":
        yield from (("file", found) for name in _FILES_OF_BATCH if isinstance(found := answer.get(name), str))


def build_unknown_error(kind: str, object_id: str, param: str | None = None) -> ApiError:
    """The same for an object that nobody has and for one of another key."""
    return ApiError(404, f"no {kind} {object_id[:200]!r}: it was not made here, or it is gone", param=param)
