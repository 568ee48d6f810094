"""A language model as a teacher: a real HTTP server that speaks the chat protocol, well and badly."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import ir3de
from ir3de.corpora import examples
from ir3de.errors import ArtifactError, InputError
from ir3de.fitting.chat_teacher import ChatTeacher, _read_answer, read_name, write_instructions
from ir3de.fitting.lessons import Lesson
from ir3de.fitting.proposals import Proposal
from ir3de.fitting.teachers import Class
from ir3de.scorers import Logistic

EXPERTS = dict(list(examples.prompts().items())[:3])
FEW = {name: texts[:5] for name, texts in EXPERTS.items()}
TRUTH = {text: name for name, texts in EXPERTS.items() for text in texts}
TRAFFIC = [text for texts in EXPERTS.values() for text in texts[5:45]]
SCHOOL = Class(tuple(EXPERTS), {next(iter(EXPERTS)): "the first of all"})

Behaviour = Callable[[str, int], tuple[int, str, dict[str, str]]]


class Chat:
    """A server whose model behaves like a function of the text and the number of the request."""

    def __init__(self, behave: Behaviour) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: set[str | None] = set()
        self.busy = self.most_busy = 0
        lock, chat = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with lock:
                    chat.requests.append(body)
                    chat.keys.add(self.headers.get("authorization"))
                    number = len(chat.requests)
                    chat.busy += 1
                    chat.most_busy = max(chat.most_busy, chat.busy)
                text = body["messages"][-1]["content"].removeprefix("Prompt:\n").removesuffix("\n\nExpert:")
                status, said, headers = behave(text, number)
                with lock:
                    chat.busy -= 1
                content = json.dumps({"choices": [{"message": {"role": "assistant", "content": said}}]}).encode()
                self.send_response(status)
                for name, value in {"content-length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1#tiny"

    def teacher(self, **more: Any) -> ChatTeacher:
        found = ChatTeacher.parse(self.address)
        return ChatTeacher(found.url, found.model, **{"first_wait_s": 0.01, "timeout_s": 10.0, **more})


@pytest.fixture
def serve() -> Iterator[Callable[[Behaviour], Chat]]:
    made: list[Chat] = []

    def start(behave: Behaviour) -> Chat:
        made.append(Chat(behave))
        return made[-1]

    yield start
    for chat in made:
        chat.server.shutdown()
        chat.server.server_close()
        chat.thread.join()


def right(text: str, number: int) -> tuple[int, str, dict[str, str]]:
    return 200, f' "{TRUTH[text].upper()}". ', {}


def test_a_model_teaches(serve: Callable[[Behaviour], Chat], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IR3DE_TEACHER_KEY", "secret")
    chat, kept, costs = serve(right), tmp_path / "answers.jsonl", []
    lesson = Lesson(chat.teacher(), TRAFFIC, kept, confirm=costs.append)
    about = {next(iter(EXPERTS)): "the first of all"}
    router = ir3de.Router.fit(FEW, scorer=Logistic(), teacher=lesson, descriptions=about)
    found = router.teaching
    assert found is not None and found.is_used and found.teacher.startswith("tiny at 127.0.0.1")
    assert found.contradicted == 0 and found.asked_again == 10 and found.unknown_names == 0
    asked = len(TRAFFIC) + 3 * 2 + 10  # three of the five labelled prompts of each expert are examples
    assert len(chat.requests) == asked and costs[0]["requests"] == asked - 10 and costs[0]["tokens_sent"] > 10 * asked
    assert chat.keys == {"Bearer secret"}
    instructions = chat.requests[0]["messages"][0]["content"]
    assert "the first of all" in instructions and all(name in instructions for name in EXPERTS)
    again = ir3de.Router.fit(FEW, scorer=Logistic(), teacher=lesson, descriptions=about)
    assert len(chat.requests) == asked and again.statistics == router.statistics


def test_a_model_proposes_for_the_texts_alone(serve: Callable[[Behaviour], Chat]) -> None:
    """No labelled prompt is asked about: they are its examples. Its cost is named first."""
    chat, costs = serve(right), list[dict[str, int]]()
    texts = [TRAFFIC[0], TRAFFIC[50], TRAFFIC[100]]
    lesson = Lesson(chat.teacher(), texts, confirm=costs.append)
    found = ir3de.Router.fit(FEW).ask_proposals(texts, lesson)
    assert found == [Proposal(TRUTH[text], None) for text in texts]
    assert len(chat.requests) == 3 and [cost["requests"] for cost in costs] == [3]
    assert FEW[next(iter(FEW))][0] in json.dumps(chat.requests[0], ensure_ascii=False)


def test_overload_and_lost_connections_are_tried_again(serve: Callable[[Behaviour], Chat]) -> None:
    def overloaded(text: str, number: int) -> tuple[int, str, dict[str, str]]:
        return (429 if number % 2 else 503, "", {"retry-after": "0.01"}) if number <= 20 else right(text, number)

    chat = serve(overloaded)
    assert chat.teacher().answer(TRAFFIC[:30], SCHOOL) == [TRUTH[text] for text in TRAFFIC[:30]]
    assert len(chat.requests) == 50


def test_a_teacher_that_is_down_or_too_slow_ends_with_an_error(serve: Callable[[Behaviour], Chat]) -> None:
    def slow(text: str, number: int) -> tuple[int, str, dict[str, str]]:
        time.sleep(0.3)
        return right(text, number)

    with pytest.raises(ArtifactError, match=r"failed 2 times.*timed out.*run the same again"):
        serve(slow).teacher(timeout_s=0.05, retries=1).answer(TRAFFIC[:1], SCHOOL)
    gone = ChatTeacher("http://127.0.0.1:9/v1", "tiny", retries=1, first_wait_s=0.01)
    with pytest.raises(ArtifactError, match=r"tiny at 127.0.0.1:9 failed 2 times"):
        gone.answer(TRAFFIC[:1], SCHOOL)


def test_a_failure_keeps_what_was_answered_before(serve: Callable[[Behaviour], Chat], tmp_path: Path) -> None:
    chat = serve(lambda text, number: right(text, number) if number <= 32 else (500, "", {}))
    kept = tmp_path / "answers.jsonl"
    with pytest.raises(ArtifactError, match="HTTP 500"):
        ir3de.Router.fit(FEW, scorer=Logistic(), teacher=Lesson(chat.teacher(retries=0), TRAFFIC, kept))
    assert len(kept.read_text().splitlines()) == 33
    chat.requests.clear()
    well = serve(right)
    teacher = ChatTeacher(chat.teacher().url, "tiny")
    assert well.teacher().url != teacher.url  # another address is another teacher, whose answers are not mixed in
    with pytest.raises(InputError, match="to another question"):
        ir3de.Router.fit(FEW, scorer=Logistic(), teacher=Lesson(well.teacher(), TRAFFIC, kept))


def test_a_wrong_key_is_not_tried_again(serve: Callable[[Behaviour], Chat]) -> None:
    chat = serve(lambda text, number: (401, "", {}))
    with pytest.raises(InputError, match=r"HTTP 401.*Set the key in IR3DE_TEACHER_KEY"):
        chat.teacher(concurrency=1).answer(TRAFFIC[:1], SCHOOL)
    assert len(chat.requests) == 1


@pytest.mark.nightly
def test_a_model_that_knows_no_expert_is_rejected(serve: Callable[[Behaviour], Chat]) -> None:
    chat = serve(lambda text, number: (200, "astrology", {}))
    with pytest.raises(InputError, match="named no expert of this router, for instance 'astrology'"):
        ir3de.Router.fit(FEW, scorer=Logistic(), unlabelled=TRAFFIC, teacher=chat.address)


def test_requests_run_beside_each_other_as_many_as_are_allowed(serve: Callable[[Behaviour], Chat]) -> None:
    together = threading.Barrier(3, timeout=30)

    def wait(text: str, number: int) -> tuple[int, str, dict[str, str]]:
        together.wait()  # a server that never has three requests at once breaks here
        return right(text, number)

    chat = serve(wait)
    assert chat.teacher(concurrency=3).answer(TRAFFIC[:9], SCHOOL) == [TRUTH[text] for text in TRAFFIC[:9]]
    assert chat.most_busy == 3


def test_an_answer_that_is_no_chat_completion_is_an_error(serve: Callable[[Behaviour], Chat]) -> None:
    assert serve(lambda text, number: (200, "", {})).teacher().answer(TRAFFIC[:2], SCHOOL) == [None, None]
    with pytest.raises(ValueError, match="tiny gave no chat completion"):
        _read_answer(b'{"object": "list"}', "tiny")


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("law", "law"),
        ("LAW.", "law"),
        ('"law"', "law"),
        ("Expert: law", "law"),
        ("**law**\nBecause it is about contracts.", "law"),
        ("The prompt belongs to law.", "law"),
        ("<think>maths? no, it is</think>law", "law"),
        ("none", None),
        ("None.", None),
        ("", None),
        ("cooking", "cooking"),
        ("maths or law", "maths or law"),
        ("lawyer", "lawyer"),
    ],
)
def test_names_are_read_however_they_are_written(said: str, name: str | None) -> None:
    assert read_name(said, ("maths", "law")) == name


def test_instructions_have_all_that_is_known_of_the_experts() -> None:
    text = write_instructions(Class(("law", "maths"), {"law": "contracts, courts"}, {"maths": ["2 +\n2?"]}))
    assert "Expert: law (contracts, courts)" in text and "Expert: maths\n- 2 + 2?" in text
