"""What is kept of the messages of a large request: the texts and roles that routing reads, and an estimate of the rest.

The first and the last texts of a chat are kept, as far as they fit: routing reads the last one, or all from the first.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ir3de.gateway.api_errors import ApiError
from ir3de.gateway.requests.token_estimate import Beginning, estimate_all, estimate_tokens

MAX_ITEMS = 10_000  # messages, and parts of messages
MAX_SCALARS = 1_000  # numbers in lists, such as token ids: routing does not read them
MAX_KEPT_CHARS = 131_072  # of one text; once envelopes are removed, routing reads 15,360
SHORT_CHARS = 64  # kept of a text in the middle of a chat whose texts do not fit
PART_FIELDS = ("role", "type", "content", "text", "output")  # of messages and their parts


class KeptTexts:
    """Prunes values. The texts that it keeps take at most `budget` bytes of memory, or a few hundred kilobytes more."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._bytes = self._items = self.scalars = 0
        self._later: deque[tuple[Any, Any, int]] = deque()  # texts behind the first ones: their holder, key and size

    def hold_items(self) -> _Items:
        return _Items(self)

    def hold_fields(self) -> _Fields:
        return _Fields(self)

    def prune(self, value: Any) -> Any:
        """A value of a message without what routing does not need."""
        if isinstance(value, list):
            items = _Items(self)
            items.add_all(value)
            return items.finish()
        if isinstance(value, dict):
            fields = _Fields(self)
            fields.add_all(value)
            return fields.finish()
        return value

    def count_item(self) -> None:
        self._items += 1
        if self._items > MAX_ITEMS:
            raise ApiError(
                413, f"the request has more than {MAX_ITEMS:,} messages and parts of messages, which is the limit here"
            )

    def keep(self, text: str, holder: Any, key: Any) -> None:
        """Count a text that was kept in a list or an object, and cut the oldest ones where that makes too many."""
        if len(text) <= SHORT_CHARS:
            return
        if not isinstance(text, Beginning):
            text = holder[key] = Beginning(
                text, estimate_tokens(text)
            )  # here, in a thread, so that nobody waits for it
        size = sys.getsizeof(text)
        self._bytes += size
        if self._bytes <= self._budget // 4:
            return
        self._later.append((holder, key, size))
        while self._bytes > self._budget and len(self._later) > 1:
            holder, key, size = self._later.popleft()
            holder[key] = Beginning(holder[key][:SHORT_CHARS], holder[key].tokens)
            self._bytes -= size


class _Items:
    """A list: strings and objects are kept, and the first few numbers."""

    def __init__(self, texts: KeptTexts) -> None:
        self._texts, self._values, self._left_out = texts, list[Any](), 0

    def add_all(self, values: Sequence[Any]) -> None:
        for value in values:
            self.add("", self._texts.prune(value))

    def add(self, _name: str, value: Any) -> None:
        if isinstance(value, (str, dict, list)):
            self._texts.count_item()
            self._values.append(value)
            if isinstance(value, str):
                self._texts.keep(value, self._values, len(self._values) - 1)
        elif self._texts.scalars < MAX_SCALARS:
            self._texts.scalars += 1
            self._values.append(value)
        else:
            self._left_out += 1

    def finish(self) -> list[Any]:
        if self._left_out:
            self._values.append(Beginning("", self._left_out))
        return self._values


class _Fields:
    """An object: the fields of messages are kept."""

    def __init__(self, texts: KeptTexts) -> None:
        self._texts, self._values, self._left_out = texts, dict[str, Any](), 0

    def add_all(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            self.add(name, self._texts.prune(value) if name in PART_FIELDS else value)

    def add(self, name: str, value: Any) -> None:
        if name not in PART_FIELDS:
            self._left_out += estimate_all([name, value])
            return
        self._values[name] = value
        if isinstance(value, str):
            self._texts.keep(value, self._values, name)

    def finish(self) -> dict[str, Any]:
        if self._left_out:
            self._values[""] = Beginning("", self._left_out)
        return self._values
