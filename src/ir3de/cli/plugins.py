"""The names that a package needs to add commands that look like those of ir3de.

A command is a click command that the package names in the entry-point group `ir3de.commands`:

    [project.entry-points."ir3de.commands"]
    bench = "ir3de_lab.cli:bench"

Help and completion list it without importing the package. A command of ir3de is never replaced.
"""

from ir3de.cli.accuracy import effects_table
from ir3de.cli.commands.explain import show_explanation
from ir3de.cli.formats import FAINT, bar, colour_of, json_text, line, percent, size
from ir3de.cli.group import refuse_other_name
from ir3de.cli.hints import is_router
from ir3de.cli.options import (
    device_option,
    domains_option,
    force_option,
    load_arithmetic,
    output_options,
    refuse_existing,
)
from ir3de.cli.output import Output, count_left_out, facts, heading, hint, split_rows, table

# fmt: off
__all__ = [
    "FAINT", "Output", "bar", "colour_of", "count_left_out", "device_option", "domains_option", "effects_table",
    "facts", "force_option", "heading", "hint", "is_router", "json_text", "line", "load_arithmetic",
    "output_options", "percent", "refuse_existing", "refuse_other_name", "show_explanation", "size", "split_rows",
    "table",
]
