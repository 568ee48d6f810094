"""The code on the pages of docs/: its blocks, what runs them, and which of them say that they cannot run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
GENERATED = {"api", "cli"}  # their code: docstrings, which run as doctests, and the help of commands
OWN_TESTS = {"your-data": "tests/test_your_data.py"}  # pages that a test of their own runs, with files of its own
OUTPUT = {"text"}  # what is shown, not run
RUN = {"python", "console"}  # by page_runner.py
CHECKED = {"csv", "json", "yaml", "toml"}  # by test_pages.py
# test_clients.py, test_node.py and test_integrations.py run these files, and compare the pages with them
EXAMPLES = [ROOT / "examples" / folder for folder in ("clients", "integrations")]

_BLOCK = re.compile(
    r"(?:^ *<!-- not run: (?P<excuse>[^\n]*?) -->\n+)?"
    r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    excuse: str | None  # from `<!-- not run: … -->` above it

    @property
    def place(self) -> str:
        return f"docs/{self.page}.md:{self.line}"

    @property
    def is_doctest(self) -> bool:
        return self.language == "python" and ">>>" in self.text

    @property
    def is_example_file(self) -> bool:
        """Whether a file of the examples holds the very same, which other tests run."""
        files = (path for folder in EXAMPLES for path in folder.glob("*.*"))
        return any(self.text == path.read_text(encoding="utf-8") for path in files)

    def list_commands(self) -> Iterator[str]:
        """What is typed in a console: the lines after `$`, with the lines that continue them."""
        lines = iter(self.text.splitlines())
        for line in lines:
            if line.startswith("$ "):
                command = line[2:]
                while command.endswith("\\"):
                    command = command[:-1] + next(lines).strip()
                yield command


def read_blocks(page: str) -> list[Block]:
    return parse_blocks((DOCS / f"{page}.md").read_text(encoding="utf-8"), page)


def parse_blocks(text: str, page: str) -> list[Block]:
    return [
        Block(
            page,
            text.count("\n", 0, match.start("language")) + 1,
            match["language"].strip(),
            re.sub(rf"^{match['indent']}", "", match["text"], flags=re.M),
            match["excuse"],
        )
        for match in _BLOCK.finditer(text)
    ]


def list_pages() -> list[str]:
    return sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))


def split_command(command: str) -> list[str]:
    return shlex.split(command, comments=True)
