"""Runs the code of a page from top to bottom, in one folder and one namespace, as a reader would."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from page_blocks import GENERATED, OWN_TESTS, ROOT, RUN, Block, list_pages, read_blocks, split_command
from page_files import make_file, make_files

from commands import run
from ir3de.cli import cli
from ir3de.cli.group import PluginCommand
from running_gateway import running

GATEWAY = re.compile(r"(http://)?(127\.0\.0\.1|localhost):8100")
SHELL = re.compile(r"[|<>;`]|\$\(|(?<!\\)\$[A-Z]")
SERVING = {
    "clients", "contributions", "conversations", "deploying", "gateway", "local-experts", "observability", "outcomes",
    "page",
}  # fmt: skip
# They take longest, and run at night
AT_NIGHT = {
    "confidence", "conversations", "costs", "integrations", "learning", "outcomes", "proof", "report", "scorers",
    "teacher", "tuning",
}  # fmt: skip
# Started for real by the tests named here, with the models and the browser that they need
RUN_ELSEWHERE = {"serve --demo": ("gateway/tests/test_local.py", "demo(")}


class PageRunner:
    """One page in its folder. A gateway is started for those pages that ask one."""

    def __init__(self, folder: Path, gateway: str | None) -> None:
        self.folder, self.gateway = folder, gateway
        self.namespace: dict[str, Any] = {"__name__": "__main__"}
        self.environment: dict[str, str] = {}  # variables before a command

    def run(self, block: Block) -> None:
        if block.is_doctest:
            self._run_examples(block)
        elif block.language == "python":
            code = compile(self._address(block.text), block.place, "exec")
            exec(code, self.namespace)
        else:
            for command in block.list_commands():
                self._run_command(command)

    def _run_examples(self, block: Block) -> None:
        test = doctest.DocTestParser().get_doctest(block.text, self.namespace, block.place, block.place, 0)
        assert test.examples
        runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
        runner.run(test, clear_globs=False)
        self.namespace = test.globs
        assert runner.failures == 0, f"{block.place}: what it prints has changed"

    def _run_command(self, command: str) -> None:
        for part in re.split(r" && ", command):
            words = split_command(part)
            while re.fullmatch(r"[A-Z0-9_]+=.*", words[0]):
                name, _, value = words.pop(0).partition("=")
                self.environment[name] = value
            if words[:2] == ["pip", "install"]:
                check_extras(words)
            elif SHELL.search(part.partition("  #")[0]) or words[0] not in ("ir3de", "curl"):
                self._run_in_shell(part)
            elif words[0] == "curl":
                self._run_in_shell(part.replace("curl ", "curl --fail-with-body -sS ", 1))
            else:
                with pytest.MonkeyPatch.context() as patch:
                    for name, value in self.environment.items():
                        patch.setenv(name, value)
                    run_ir3de(words[1:])
                if "--write" in words:  # fewer prompts, so that what follows is quick
                    make_file(self.folder / words[words.index("--write") + 1])

    def _run_in_shell(self, command: str) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._address(command)],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stdout, done.stderr)

    def _address(self, text: str) -> str:
        if GATEWAY.search(text):
            assert self.gateway is not None
            text = GATEWAY.sub(self.gateway, text)
        return text


def run_ir3de(words: list[str]) -> None:
    """A command of ir3de in this process. `serve` goes as far as it can without serving."""
    assert words[0] != "bench", "benchmarks take minutes: write `<!-- not run: the reason -->` above the block"
    for start, (where, text) in RUN_ELSEWHERE.items():
        if " ".join(words).startswith(start):
            assert text in (ROOT / where).read_text(encoding="utf-8")
            check_call(words)
            return
    if words[0] == "serve" and "--dry-run" not in words:
        words = [*words, "--dry-run"]
    words = [word for word in words if word != "--ping"]  # the page's endpoints are not there
    result = run(*words)
    assert result.stdout or "--output" in words or "-o" in words, words


def check_call(words: list[str]) -> None:
    """Whether such a command, such options and so many arguments exist; nothing is run."""
    command: click.Command = cli
    context = command.make_context("ir3de", list(words[:1]), resilient_parsing=True)
    while isinstance(command, click.Group):
        assert words, f"{command.name} needs a command"
        found = command.get_command(context, words[0])
        assert found is not None, f"ir3de has no command {words[0]}"
        command = found.load() if isinstance(found, PluginCommand) else found
        words = words[1:]
    command.make_context(str(command.name), list(words), parent=context)


def check_extras(words: list[str]) -> None:
    """Whether `pip install` names this checkout and extras that it has."""
    for target in (word for word in words[2:] if not word.startswith("-")):
        found = re.fullmatch(r"(\.|\./gateway|\./lab)(?:\[([\w,]+)\])?", target)
        if found is None:
            assert not target.startswith("ir3de"), f"{target}: ir3de is not on an index"
            continue
        project = tomllib.loads((ROOT / found[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extras: Mapping[str, Any] = project.get("optional-dependencies", {})
        assert set((found[2] or "").split(",")) - {""} <= extras.keys(), target


@contextmanager
def opened_page(blocks: list[Block], folder: Path) -> Iterator[PageRunner]:
    """The page's folder with the files that it names, and a gateway if it asks one."""
    code = "\n".join(block.text for block in blocks)
    make_files(folder, code)
    asks = any(GATEWAY.search(block.text) and (block.language == "python" or "curl" in block.text) for block in blocks)
    if asks:
        with running(folder / "gateway") as gateway:
            yield PageRunner(folder, gateway.url)
    else:
        yield PageRunner(folder, None)


def run_page(page: str, folder: Path) -> None:
    blocks = list_running_blocks(page)
    with opened_page(blocks, folder) as runner:
        for block in blocks:
            runner.run(block)


def list_running_pages() -> list[str]:
    """Pages with a block that is run from the page itself."""
    return [page for page in list_pages() if page not in {*GENERATED, *OWN_TESTS} and list_running_blocks(page)]


def list_page_parameters(*, serving: bool) -> Iterator[Any]:
    """The running pages about serving or the others, as parameters of a test."""
    for page in list_running_pages():
        if (page in SERVING) == serving:
            yield pytest.param(page, marks=pytest.mark.nightly if page in AT_NIGHT else ())


def list_running_blocks(page: str) -> list[Block]:
    blocks = (block for block in read_blocks(page) if block.language in RUN and not block.excuse)
    return [block for block in blocks if not block.is_example_file]
