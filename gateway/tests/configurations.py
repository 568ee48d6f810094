"""Configurations as texts, for tests."""

from pathlib import Path
from typing import Any

from ir3de_gateway.config.document import Config
from ir3de_gateway.config.load import parse_config, parse_document

GOOD = "router: {path: router}\nexperts:\n  - name: law\n    base_url: http://127.0.0.1:1/v1\n"


def parsed(text: str, **options: Any) -> Config:
    return parse_config(parse_document(text, "f.yaml"), Path("/etc/f.yaml"), **options)
