"""Feedback on a request that another machine answered: a pointer to its journal, and a mailbox of that journal.

    P:request:HASH       which machine has a request, by its id or that of its answer; for a day
    P:feedback:MACHINE   feedback that the machine is to write into its journal

Each machine has a journal of its own. What is in a mailbox is written before it is removed, so a crash loses none.
Another worker may have answered the request and not written it yet: such feedback waits in its place for a while.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import platform
from dataclasses import asdict
from time import monotonic, time
from typing import TYPE_CHECKING, Any, NamedTuple

from ir3de.errors import InputError
from ir3de.traffic import Feedback
from ir3de_gateway.background import run_in_thread
from ir3de_gateway.store.contract import StoreUnavailableError
from ir3de_gateway.store.shared.connection import ForeignContentError, StoreConnection

if TYPE_CHECKING:
    from ir3de_gateway.exchange_record import ExchangeRecord
    from ir3de_gateway.feedback.writer import JournalWriter

POINTER_S = 86_400  # that a request is known on other machines
MAIL_S = 30 * 86_400  # that feedback waits for its machine
ROW_WAIT_S = 60.0  # that feedback waits for its request to be in the journal, also while a disk fails
DELIVER_INTERVAL_S = 0.5
MAIL_AT_ONCE = 100

_log = logging.getLogger("ir3de.gateway")


class Pointer(NamedTuple):
    """Which machine has a request."""

    machine: str
    id: str
    key: str
    response: str
    served: str


class Mailbox:
    """The mailbox of one machine's journal, and the way to those of others."""

    def __init__(self, connection: StoreConnection, folder: str) -> None:
        self._connection, self.folder = connection, folder
        self.machine = hashlib.sha256(f"{platform.node()}\0{folder}".encode()).hexdigest()[:16]
        self._waiting: dict[bytes, float] = {}  # mail without its request, and since when by this worker's clock

    @property
    def is_away(self) -> bool:
        return self._connection.is_away

    async def note(self, record: ExchangeRecord) -> None:
        """Let other machines know where a request is. While the store is away, they do not."""
        pointer = Pointer(self.machine, record.request_id, record.key, record.response_id, record.expert)
        for named in filter(None, (pointer.id, pointer.response)):
            command = ("SET", self._name(named), json.dumps(pointer), "EX", POINTER_S)
            try:
                await asyncio.shield(asyncio.ensure_future(self._connection.do(*command, writes=True)))
            except (StoreUnavailableError, ForeignContentError):
                return

    async def find(self, named: str, key: str | None) -> Pointer | None:
        """Where a request is that another machine answered; with a key, only one of its own."""
        try:
            found = await self._connection.do("GET", self._name(named))
        except (StoreUnavailableError, ForeignContentError):
            return None
        pointer = None if found is None else Pointer(*json.loads(found))
        is_elsewhere = pointer is not None and pointer.machine != self.machine and key in (None, pointer.key)
        return pointer if is_elsewhere else None

    async def send(self, pointer: Pointer, feedback: Feedback | None, author: str) -> None:
        """Put feedback into the mailbox of the machine that has the request; None deletes the author's."""
        # the time makes each mail unlike any other: one is removed by its content
        mail: dict[str, Any] = {"id": pointer.id, "key": pointer.key, "author": author, "sent": time()}
        mail["feedback"] = None if feedback is None else asdict(feedback)
        name = self._name_box(pointer.machine)
        await self._connection.do("RPUSH", name, json.dumps(mail), writes=True)
        await self._connection.do("EXPIRE", name, MAIL_S, writes=True)

    async def deliver(self, journal: JournalWriter) -> None:
        """Write what others have put into this machine's mailbox. One worker does it for all.

        Mail whose request is not in the journal stays in its place, and so does what the author sent after it on the
        same request. Other mail is written. The time is taken here, because machines' clocks differ.
        """
        name, waiting, held = self._name_box(self.machine), dict[bytes, float](), set[tuple[str, str]]()
        try:
            mails = await self._connection.do("LRANGE", name, 0, MAIL_AT_ONCE + len(self._waiting) - 1)
            for mail in mails:
                content, since = json.loads(mail), self._waiting.get(mail, monotonic())
                about = content["id"], content["author"]
                is_last = monotonic() - since >= ROW_WAIT_S
                if about in held or not await run_in_thread(_write, journal, content, is_last):
                    held.add(about)
                    waiting[mail] = since
                    continue
                await self._connection.do("LREM", name, 1, mail, writes=True)
            self._waiting = waiting
        except (StoreUnavailableError, ForeignContentError):
            return

    def _name(self, named: str) -> str:
        return f"{self._connection.prefix}:request:{hashlib.sha256(named.encode(errors='replace')).hexdigest()[:32]}"

    def _name_box(self, machine: str) -> str:
        return f"{self._connection.prefix}:feedback:{machine}"


def _write(journal: JournalWriter, mail: dict[str, Any], is_last: bool) -> bool:
    """Write feedback; whether its mail is done with. At the last attempt it is, with or without its request."""
    journal.flush()
    try:
        if mail["feedback"] is None:
            journal.delete_feedback(mail["id"], mail["author"], mail["key"])
        else:
            journal.put_feedback(mail["id"], Feedback(**mail["feedback"]), mail["key"])
    except InputError as error:  # another worker has not written the request yet, or it was deleted meanwhile
        if not is_last:
            return False
        _log.warning("feedback from another machine was not kept: %s", error)
    return True
