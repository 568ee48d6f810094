"""What reads bytes of strangers comes in versions that are known to work: not older, and not of an unknown future."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
GATEWAY = tomllib.loads((ROOT / "gateway" / "pyproject.toml").read_text("utf-8"))["project"]
SERVER = [given for given in GATEWAY["dependencies"] if given != "ir3de"]
BASE = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
READERS = [*SERVER, *EXTRAS["zstd"], *EXTRAS["yaml"], *EXTRAS["fast"], BASE["fast-tokenizer"]]
READERS += [given for given in BASE["dependencies"] if given.startswith("tokenizers")]
OTHERS = [*BASE["dependencies"], *EXTRAS["parquet"], *EXTRAS["gguf"], *GATEWAY["optional-dependencies"]["local"]]
OTHERS += GATEWAY["optional-dependencies"]["otel"]


def bounds(requirement: str) -> str:
    return re.sub(r"^[A-Za-z0-9_.-]+(\[[^]]*\])?", "", requirement.partition(";")[0]).strip()


@pytest.mark.parametrize("requirement", READERS)
def test_readers_of_untrusted_bytes_are_bounded_on_both_sides(requirement: str) -> None:
    assert re.fullmatch(r">=[0-9.]+,<[0-9.]+", bounds(requirement)), requirement


@pytest.mark.parametrize("requirement", [given for given in OTHERS if not given.startswith("ir3de[")])
def test_all_have_a_lower_bound(requirement: str) -> None:
    assert bounds(requirement).startswith(">="), requirement
