"""The chats of `bench conversations`, held with a real gateway by the official openai client, turn by turn.

The gateway is a process of its own, with a stand-in behind it for all experts. The client sends no header: whoever
answers was chosen by the messages alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ir3de import Conversation
from ir3de.errors import InputError
from ir3de_lab.benchmarks import switches
from ir3de_lab.benchmarks.chats import Chat, Message
from ir3de_lab.benchmarks.conversations import Prepared, Row, count_right
from ir3de_lab.benchmarks.gateway.processes import gateway, module, require_extra, started
from ir3de_lab.benchmarks.gateway.switching import add_price
from ir3de_lab.benchmarks.traces import Ask

if TYPE_CHECKING:
    import openai

GATEWAY, LIBRARY, LAST_MESSAGE, PRICED = "gateway", "library", "last message", "gateway, prices"


@dataclass(frozen=True)
class Comparison:
    """The rows of one set, and how many turns the gateway sent elsewhere than the library does, without prices."""

    data: str
    turns: int
    different: int
    rows: tuple[Row, ...]
    switches: tuple[switches.Row, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(prepared: Prepared) -> Comparison:
    """Hold the test chats of a set with gateways, and route them with the library and by their last messages."""
    chats, router = prepared.test, prepared.router
    through, priced = (list(hold_chats(prepared, is_priced=is_priced)) for is_priced in (False, True))
    made = [Conversation.from_messages(router, chat.messages) for chat in chats]
    own = [[turn.decision.best for turn in conversation.turns] for conversation in made]
    last = [[one.best for one in router.route_batch(turn.text for turn in chat.turns)] for chat in chats]
    pairs = [pair for chat in zip(through, own, strict=True) for pair in zip(*chat, strict=True)]
    ways = {LAST_MESSAGE: last, LIBRARY: own, GATEWAY: through, PRICED: priced}
    rows = tuple(count_right(prepared.name, way, chats, chosen) for way, chosen in ways.items())
    asks, different = [list_asks(chat) for chat in chats], sum(one != other for one, other in pairs)
    counted = tuple(
        switches.count_switches(prepared.name, way, asks, chosen) for way, chosen in ways.items() if way != LIBRARY
    )
    return Comparison(prepared.name, len(pairs), different, rows, counted)


def list_asks(chat: Chat) -> list[Ask]:
    """The requests of a chat, with the experts that should get them."""
    pairs = zip(list_requests(chat), chat.turns, strict=True)
    return [Ask("chat", list(messages), turn.expert) for messages, turn in pairs]


def hold_chats(prepared: Prepared, *, is_priced: bool = False) -> Iterator[list[str]]:
    """For each test chat, the experts that answered its turns."""
    require_extra()
    try:
        import openai
    except ImportError:
        raise InputError("the official client is not installed: pip install openai") from None
    with tempfile.TemporaryDirectory(prefix="ir3de-chats-") as made:
        folder = Path(made)
        prepared.router.save(folder / "router", serving=True)

        def edit(config: dict[str, Any]) -> None:
            names, pattern = prepared.router.experts, config["experts"][0]
            config["experts"] = [{**pattern, "name": name} for name in names]
            config["logs"]["access"] = None
            if is_priced:
                add_price(config)

        with (
            started(module("upstream", latency=0, tokens=1), measured=False) as experts,
            gateway(folder, experts.port, edit=edit) as served,
            openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="any", max_retries=0) as client,
        ):
            for chat in prepared.test:
                yield [_ask(client, messages) for messages in list_requests(chat)]


def list_requests(chat: Chat) -> Iterator[Sequence[Message]]:
    """The messages of each request: all up to a turn of the user."""
    turns = iter(chat.turns)
    turn = next(turns, None)
    for place, message in enumerate(chat.messages):
        if turn is not None and message["role"] == "user" and turn.text in _read_text(message):
            yield chat.messages[: place + 1]
            turn = next(turns, None)


def _read_text(message: Message) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _ask(client: openai.OpenAI, messages: Sequence[Message]) -> str:
    answer: Any = client.chat.completions.create(model="auto", messages=list(messages))  # type: ignore[arg-type]
    return str(answer.ir3de["expert"])
