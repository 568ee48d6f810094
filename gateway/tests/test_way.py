"""The way of a plain chat request: how many files of the gateway it passes, and how many Python calls it makes.

Counted is the way from the ASGI application to the last byte of the answer, with `setprofile`: each start of a function
and each resumption of a coroutine. What comes before (the server that reads the bytes) and after (metrics and logs,
which are written in batches) is not counted.
"""

import http.client
import json
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ir3de_gateway
from ir3de_gateway.telemetry import observer
from running_gateway import Running, running
from surface import check_no_circles

PACKAGE = f"{Path(ir3de_gateway.__file__).parent}/"
MAX_FILES = 20
MAX_CALLS = 150


def count_calls(gateway: Running) -> Counter[tuple[str, str]]:
    """The calls into the gateway's package that one request makes in a warm gateway, by file and function."""
    counted: Counter[tuple[str, str]] = Counter()
    loop = gateway.gateway._background[0].get_loop()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            counted[frame.f_code.co_filename.removeprefix(PACKAGE), frame.f_code.co_qualname] += 1

    def switch(profile: Any) -> None:
        done = threading.Event()

        def apply() -> None:
            sys.setprofile(profile)
            done.set()

        loop.call_soon_threadsafe(apply)
        assert done.wait(10)

    address = gateway.url.removeprefix("http://")
    connection = http.client.HTTPConnection(address)
    body = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "Is my contract void?"}]})

    def ask() -> None:
        connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        answer.read()

    for _ in range(3):
        ask()
    switch(note)
    ask()
    switch(None)
    connection.close()
    return counted


def test_a_plain_request_passes_few_files_and_makes_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observer, "OBSERVE_DELAY_S", 600.0)
    with running(tmp_path) as gateway:
        counted = count_calls(gateway)
    files = Counter[str]()
    for (file, _), calls in counted.items():
        files[file] += calls
    shown = "\n".join(f"{calls:4d} {file}" for file, calls in files.most_common())
    shown += "\n" + "\n".join(f"{calls:4d} {file} {name}" for (file, name), calls in counted.most_common())
    assert len(files) <= MAX_FILES and counted.total() <= MAX_CALLS, (
        f"{len(files)} files, {counted.total()} calls\n{shown}"
    )


def test_no_modules_import_each_other() -> None:
    check_no_circles(Path(ir3de_gateway.__file__).parent)
