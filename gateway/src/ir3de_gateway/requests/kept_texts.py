"""What is kept of the messages of a large request: the texts and roles that routing reads, and an estimate of the rest.

The first texts of a chat are kept, and of the others the user's turns before those of other roles and newer ones before
older ones, as far as they fit: routing reads the user's turns, or all texts from the first.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from ir3de.serving import END_CHARS, MAX_TURN_CHARS, shorten_turn
from ir3de_gateway.api_errors import ApiError
from ir3de_gateway.requests.model_texts import FILE_FIELDS, FILE_HEAD_CHARS, list_part_slots
from ir3de_gateway.requests.tokens import Beginning, estimate_tokens

MAX_ITEMS = 10_000  # messages, and parts of messages
MAX_SCALARS = 1_000  # numbers in lists, such as token ids: routing does not read them
MAX_KEPT_CHARS = 131_072  # of the beginning of a text; once envelopes are removed, routing reads 15,360
MAX_END_CHARS = 4 * END_CHARS  # also kept of a longer one: a question may stand behind what was pasted
SHORT_CHARS = 64  # kept of a text in the middle of a chat whose texts do not fit
PART_FIELDS = ("role", "type", "content", "text", "output", "source", "file", "media_type")  # of messages and parts


class _Kept(NamedTuple):
    """Where a text is kept, its number and its size in memory."""

    number: int
    holder: Any
    key: Any
    size: int


class KeptTexts:
    """Prunes values. The texts that it keeps take at most `budget` bytes of memory, or a few hundred kilobytes more.

    `check_part_field` is called with the fields that it leaves out.
    """

    def __init__(self, budget: int, check_part_field: Callable[[str, object], None]) -> None:
        self._budget, self.check_part_field = budget, check_part_field
        self._bytes = self._items = self._texts = self.scalars = 0
        # texts behind the first ones, oldest first
        self._message: deque[_Kept] = deque()  # of the message that is being read: its role may come last
        self._others: deque[_Kept] = deque()  # of all roles but the user
        self._long_turns: deque[_Kept] = deque()  # of the user, of which routing reads the beginning and the end
        self._turns: list[_Kept] = []  # of the user, as a heap

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
            text = holder[key] = Beginning(text, estimate_tokens(text))  # here, in a thread
        size = sys.getsizeof(text)
        self._bytes += size
        self._texts += 1
        if self._bytes <= self._budget // 4:
            return
        self._message.append(_Kept(self._texts, holder, key, size))
        while self._bytes > self._budget and self._cut_one():
            pass

    def end_message(self, role: object) -> None:
        """The role of the message that was read, whose texts are now among those of its kind."""
        for kept in self._message:
            if role != "user":
                self._others.append(kept)
            elif len(kept.holder[kept.key]) > MAX_TURN_CHARS:
                self._long_turns.append(kept)
            else:
                heappush(self._turns, kept)
        self._message.clear()

    def _cut_one(self) -> bool:
        """Cut the text that is needed least; whether there was one."""
        if self._others:
            kept = self._others.popleft()
        elif self._long_turns:
            kept = self._long_turns.popleft()
            size = self._replace(kept, shorten_turn(kept.holder[kept.key]))
            heappush(self._turns, kept._replace(size=size))
            return True
        elif self._turns:
            kept = heappop(self._turns)
        elif len(self._message) > 1:
            kept = self._message.popleft()
        else:
            return False
        self._replace(kept, kept.holder[kept.key][:SHORT_CHARS])
        return True

    def _replace(self, kept: _Kept, text: str) -> int:
        """Keep a shorter text instead; its size. What is cut to `SHORT_CHARS` is no longer counted."""
        made = kept.holder[kept.key] = Beginning(text, kept.holder[kept.key].tokens)
        size = sys.getsizeof(made) if len(text) > SHORT_CHARS else 0
        self._bytes += size - kept.size
        return size


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
        if name in FILE_FIELDS and isinstance(value, str):  # the beginning shows whether models read it
            value = Beginning(value[:FILE_HEAD_CHARS], estimate_tokens(value))
        elif name not in PART_FIELDS:
            self._texts.check_part_field(name, value)
            self._left_out += sum(estimate_tokens(slot.text) for slot in list_part_slots(name, value))
            return
        self._values[name] = value
        if isinstance(value, str):
            self._texts.keep(value, self._values, name)

    def finish(self) -> dict[str, Any]:
        if "role" in self._values or "output" in self._values:  # a message, or the result of a tool
            self._texts.end_message(self._values.get("role"))
        if self._left_out:
            self._values[""] = Beginning("", self._left_out)
        return self._values
