"""Write docs/ir3de.schema.json, the JSON Schema of the gateway's configuration; `--check` only compares."""

from __future__ import annotations

import sys
from pathlib import Path

from ir3de.gateway.config.load import format_schema

TARGET = Path(__file__).parent.parent / "docs" / "ir3de.schema.json"


def main() -> int:
    made = format_schema()
    if "--check" in sys.argv[1:]:
        if TARGET.is_file() and TARGET.read_text(encoding="utf-8") == made:
            return 0
        print(f"docs/{TARGET.name} is out of date: run python scripts/generate_config_schema.py", file=sys.stderr)
        return 1
    TARGET.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
