"""doctor, completion: check the installation, and set up the shell."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Literal

import click

import ir3de
from ir3de.cli.formats import FAINT, line
from ir3de.cli.group import KNOWN_PLUGINS
from ir3de.cli.options import output_options
from ir3de.cli.output import Output, Result, table
from ir3de.errors import IR3DEError, name_extra
from ir3de.files.atomic import count_cores
from ir3de.files.package import VERSION

REQUIRED = ("numpy", "tokenizers", "click", "rich")
EXTRAS = {
    "gguf": ("gguf", "reading .gguf files"),
    "pyarrow": ("parquet", "reading .parquet files"),
    "zstandard": ("zstd", "reading .zst files"),
    "pyyaml": ("yaml", "importing routes from .yaml files"),
    "ray": ("ray", "counting on a Ray cluster"),
    "torch": ("torch", "fitting on an accelerator"),
    "model2vec": ("distil", "distilling sentence encoders"),
    "onnxruntime": ("encoder", "running sentence encoders"),
    "onnx": ("encoder", "installing sentence encoders"),
    "matplotlib": ("plots", "drawing diagrams"),
    "scikit-learn": ("sklearn", "the estimator of scikit-learn"),
    "huggingface_hub": ("all", "reading models by hub id"),
}
NO_FAST_ENGINE = (
    "not installed: the reference tokenizer is used, which gives the same ids and takes longer. "
    "It has no wheels for musl and for Windows on ARM; elsewhere: "
)
HUB_FLAGS = ("HF_HOME", "HF_HUB_OFFLINE")
STYLES = {"ok": ("✓", "green"), "note": ("·", FAINT), "broken": ("✗", "red")}


@dataclass(frozen=True)
class Finding:
    """One part of the installation, and its state."""

    name: str
    state: Literal["ok", "note", "broken"]
    found: str


@click.command()
@output_options
@click.pass_context
def doctor(context: click.Context, out: Output) -> None:
    """Check the installation.

    The exit code is 1 if something that ir3de needs is missing or damaged.

    \b
    Example:
      ir3de doctor --json
    """
    with out.spinner("looking"):
        findings = list(_findings())
    broken = [finding for finding in findings if finding.state == "broken"]
    rows = [
        (line(STYLES[one.state]), one.name, line((one.found, FAINT if one.state == "note" else ""))) for one in findings
    ]
    verdict = line((f"{len(broken)} broken", "red") if broken else ("all is well", "green"))
    document = {"ok": not broken, "findings": [asdict(finding) for finding in findings]}
    out.show(document, (table("", "part", "found", rows=rows), Result(verdict)))
    context.exit(1 if broken else 0)


def version_of(package: str) -> str | None:
    """The installed version, or None."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _findings() -> Iterator[Finding]:
    from ir3de import kernel  # which imports numpy

    yield Finding("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Finding("ir3de", "ok", VERSION)
    for package in REQUIRED:
        found = version_of(package)
        yield Finding(package, "ok" if found else "broken", found or f"missing: pip install {package}")
    fast = version_of("tokie")
    yield Finding("tokie", "ok" if fast else "note", fast or NO_FAST_ENGINE + name_extra("fast"))
    yield _checked("bundled embedding", _bundled)
    yield _checked("tokenizer engine", _engine)
    yield Finding(
        "kernel", "ok" if kernel.native is not None else "note", f"{kernel.engine.name}: {kernel.engine.reason}"
    )
    yield _checked("BLAS", _blas)
    for package, (extra, purpose) in EXTRAS.items():
        found = version_of(package)
        install = f"optional, for {purpose}: {name_extra(extra)}"
        yield Finding(package, "ok" if found else "note", found or install)
    for distribution in dict.fromkeys(plugin.distribution for plugin in KNOWN_PLUGINS.values()):
        found = version_of(distribution)
        names = " and ".join(
            f"`ir3de {name}`" for name, one in KNOWN_PLUGINS.items() if one.distribution == distribution
        )
        install = f"optional, for {names}: {name_extra('', distribution)}"
        yield Finding(distribution, "ok" if found else "note", found or install)
    for flag in HUB_FLAGS:
        yield Finding(flag, "note", os.environ.get(flag, "not set"))


def _checked(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, "ok", look())
    except (IR3DEError, ImportError) as error:
        return Finding(name, "broken", " ".join(str(error).split()))


def _bundled() -> str:
    found = ir3de.Embedding.default()  # compares tokenizer and matrix with their hashes
    return f"{found.name}, {found.vocabulary_size:,} × {found.width}, fingerprint {found.fingerprint[:12]}"


def _engine() -> str:
    tokenizer = ir3de.Embedding.default().tokenizer
    if tokenizer.proof is None:
        return f"{tokenizer.engine}, the reference: the fast engine is missing or not proven for this tokenizer"
    return f"{tokenizer.engine}, proven to give the reference's ids"


def _blas() -> str:
    import numpy as np

    blas = (np.show_config(mode="dicts") or {}).get("Build Dependencies", {}).get("blas", {})
    threads = os.environ.get("OPENBLAS_NUM_THREADS") or os.environ.get("OMP_NUM_THREADS") or count_cores()
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}, {threads} threads"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@output_options
@click.pass_context
def completion(context: click.Context, shell: str, out: Output) -> None:
    """Print the script that completes commands with Tab.

    \b
    Examples:
      ir3de completion bash >> ~/.bashrc
      ir3de completion zsh  >> ~/.zshrc
      ir3de completion fish > ~/.config/fish/completions/ir3de.fish
    """
    from click.shell_completion import get_completion_class

    made = get_completion_class(shell)
    assert made is not None
    script = made(context.find_root().command, {}, "ir3de", "_IR3DE_COMPLETE").source()
    out.json({"shell": shell, "script": script})
    if not out.as_json:
        print(script)
