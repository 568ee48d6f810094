"""Draw docs/images/explain.svg: what `ir3de explain` shows on a terminal, as a picture."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

from rich.console import Console

from ir3de import Router, demo
from ir3de.cli.explaining import show_explanation
from ir3de.cli.output import Output

TARGET = Path(__file__).parent.parent / "docs" / "images" / "explain.svg"
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


def main() -> None:
    console = Console(record=True, width=100, force_terminal=True, color_system="truecolor", file=StringIO())
    output = Output()
    output.__dict__["console"] = console  # where the cached property would put it
    router = Router.fit(demo.prompts())
    show_explanation(output, router, router.explain(PROMPT), rows=6)
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(console.export_svg(title=COMMAND, code_format=FRAME, unique_id="ir3de"), encoding="utf-8")


if __name__ == "__main__":
    main()
