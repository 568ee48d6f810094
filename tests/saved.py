"""Two small routers, and what tests of their folders have in common."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import tiny
from ir3de import EntropyTopK, Router, TokenRidge, files
from ir3de.errors import ArtifactError, IR3DEError

PROMPTS = ["", "字 \x00", *tiny.mixed(8)]


def first_router() -> Router:
    return tiny.router()


def second_router() -> Router:
    return tiny.router(seed=1, scorer=TokenRidge(), selector=EntropyTopK(3), default="law")


def refusal(action: Callable[..., object], *arguments: object, kind: type[IR3DEError] = ArtifactError) -> str:
    with pytest.raises(kind) as caught:
        action(*arguments)
    assert caught.type is kind
    return str(caught.value)


def assert_same_router(loaded: Router, expected: Router) -> None:
    assert tiny.same_table(loaded, expected)
    assert loaded.scorer == expected.scorer
    assert loaded.route_batch(PROMPTS) == expected.route_batch(PROMPTS)


def part(folder: Path, start: str) -> Path:
    """The one file of a router's folder whose name starts so."""
    (path, *_) = sorted(folder.glob(f"{start}*"))
    return path


def edit(folder: Path, change: Callable[[dict], object]) -> None:
    """Change a router's header by hand."""
    path = folder / "router.json"
    header = json.loads(path.read_bytes())
    change(header)
    header.pop("sha256", None)  # sealed anew: what the seal finds is another test's business
    path.write_bytes(files.to_json(files.seal(header)))
