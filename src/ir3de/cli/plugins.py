"""What a package needs to add commands that look like those of ir3de.

A command is a click command that the package names in the entry-point group `ir3de.commands`:

    [project.entry-points."ir3de.commands"]
    bench = "ir3de_lab.cli:bench"

Help and completion list it without importing the package. A command of ir3de is never replaced.
"""

from ir3de.cli.accuracy_tables import effects_table
from ir3de.cli.commands.explain import show_explanation
from ir3de.cli.options import device_option, domains_option, load_arithmetic, output_options
from ir3de.cli.output import FAINT, Output, bar, colour_of, facts, heading, hint, json_text, line, percent, size, table

__all__ = [
    "FAINT",
    "Output",
    "bar",
    "colour_of",
    "device_option",
    "domains_option",
    "effects_table",
    "facts",
    "heading",
    "hint",
    "json_text",
    "line",
    "load_arithmetic",
    "output_options",
    "percent",
    "show_explanation",
    "size",
    "table",
]
