"""Draw what commands show on a terminal: docs/images/explain.svg and docs/images/receipt.svg."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ir3de import Router
from ir3de.cli.plugins import Output, show_explanation
from ir3de.corpora import examples as demo
from ir3de_lab.catalogue.recording import record
from ir3de_lab.files import write_json

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WIDTH = 100
PROMPT = "The tenant stopped paying rent after breaking a leg: may the landlord terminate the lease?"
COMMAND = 'ir3de explain router "The tenant stopped paying rent …"'

# rich's own frame names fonts on another host; this one takes what the reader's machine has
FRAME = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, monospace; font-size: {char_height}px;
line-height: {line_height}px; }} .{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }} {styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g></svg>
"""


OWNERS = {"berlin": "Kanzlei Berlin", "paris": "Cabinet Paris", "rome": "Studio Roma"}
SETUP = """
ir3de fit router law=berlin.stats law=paris.stats maths=maths.txt
ir3de add router --merge law=rome.stats
ir3de remove router law --contribution berlin
ir3de receipt router --contribution berlin --output receipt.json
"""
SHOWN = """
ir3de ledger router
ir3de verify router --receipt receipt.json --statistics berlin.stats
"""


def explain() -> None:
    """Every word in the colour of the expert it speaks for."""
    console, output = _recording(), Output()
    output.__dict__["console"] = console  # where the cached property would put it
    router = Router.fit(demo.prompts())
    show_explanation(output, router, router.explain(PROMPT), rows=10)
    _save(console, "explain.svg", COMMAND)


def receipt() -> None:
    """What three owners gave, what one of them took back, and how anyone checks it."""
    console, prompts = _recording(), demo.prompts()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "maths.txt").write_text("\n".join(prompts["mathematics"]), encoding="utf-8")
        for place, (name, owner) in enumerate(OWNERS.items()):
            Path(folder, f"{name}.txt").write_text("\n".join(prompts["law"][place::3]), encoding="utf-8")
            _run(f"ir3de collect {name}.stats {name}.txt --owner '{owner}' --id {name}", folder)
        for command in SETUP.split("\n")[1:-1]:
            _run(command, folder)
        for command in SHOWN.split("\n")[1:-1]:
            console.print(Text.assemble(("$ ", "bright_black"), (command, "bold")))
            console.print(Text.from_ansi(_run(command, folder)))
    _save(console, "receipt.svg", "who gave what, and what became of it")


def _run(command: str, folder: str) -> str:
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
    arguments = [sys.executable, "-m", *shlex.split(command)]
    return subprocess.run(arguments, cwd=folder, env=environment, check=True, capture_output=True, text=True).stdout


def _recording() -> Console:
    return Console(record=True, width=WIDTH, force_terminal=True, color_system="truecolor", file=StringIO())


def _save(console: Console, name: str, title: str) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    drawn = console.export_svg(title=title, code_format=FRAME, unique_id="ir3de")
    (IMAGES / name).write_text(drawn, encoding="utf-8")


if __name__ == "__main__":
    explain()
    receipt()
    write_json(IMAGES.parents[1] / "results" / "picture_terminal.json", record("pictures of terminals"))
