"""Write docs/ir3de.schema.json, the schema of the gateway's configuration, and its page; `--check` only compares."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ir3de_gateway.config.load import format_schema
from reference_pages import describe_configuration

DOCS = Path(__file__).parent.parent / "docs"


def main() -> int:
    schema = format_schema()
    wanted = {"ir3de.schema.json": schema, "configuration.md": describe_configuration(json.loads(schema))}
    failed = 0
    for name, made in wanted.items():
        target = DOCS / name
        if "--check" not in sys.argv[1:]:
            target.write_text(made, encoding="utf-8")
        elif not target.is_file() or target.read_text(encoding="utf-8") != made:
            print(f"docs/{name} is out of date: run python scripts/generate_config_schema.py", file=sys.stderr)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
