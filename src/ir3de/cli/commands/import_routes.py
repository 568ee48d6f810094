"""import: the routes of another router as a labelled file."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ir3de.cli import options
from ir3de.cli.formats import FAINT, line, one_line, printable
from ir3de.cli.output import Block, Output, Result, facts, heading, hint, saved_line, short_table
from ir3de.errors import InputError

if TYPE_CHECKING:
    from ir3de.corpora import ImportedRoutes

KINDS = {  # how --from names a router, and how people do
    "semantic-router": "semantic-router",
    "litellm": "LiteLLM's auto-router",
    "vllm-sr": "vLLM Semantic Router",
}
SUFFIXES = (".jsonl", ".csv")
TEXT, LABEL = "text", "expert"  # the columns of the labelled file
ROUTER = "router"  # in the commands to run next
FIRST_PORT = 8001  # of an endpoint that the file does not name, as in `ir3de config init`
MAX_WORDS_CHARS = 50  # of a description in the table
CONTINUED = " \\\n    "  # a command that goes on in the next line


def _parse_target(context: click.Context, parameter: click.Parameter, value: str) -> Path:
    return options.check_suffix(value, SUFFIXES, "`ir3de fit` knows labelled files by it: add one")


@click.command("import")
@click.argument("source", metavar="SOURCE", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", callback=_parse_target)
@click.option(
    "--from",
    "kind",
    type=click.Choice(tuple(KINDS)),
    help="Whose file SOURCE is.  [default: what its content shows; LiteLLM's router.json looks like semantic-router's]",
)
@options.force_option
@options.output_options
def import_routes(source: Path, target: Path, kind: str | None, force: bool, out: Output) -> None:
    """Bring routes over from another router.

    SOURCE is a JSON or YAML file: what semantic-router saves (to_json, to_yaml) or a list of its routes; router.json
    of LiteLLM's auto-router, or the proxy's config.yaml with the routes in it; config.yaml of vLLM Semantic Router.
    YAML needs the extra `yaml`.

    OUT is the labelled file to write, .jsonl or .csv, with the columns `text` and `expert`. The printed `ir3de fit`
    command takes it, and the descriptions; if SOURCE has nothing but descriptions, OUT is not written. If SOURCE
    names models, a second command is printed, which begins the gateway's configuration. What IR3DE has no place for,
    such as encoders, thresholds and keywords, is listed.

    \b
    Example:
      ir3de import routes.json routes.jsonl
      ir3de import router.json routes.jsonl --from litellm
      ir3de import config.yaml routes.csv
    """
    from ir3de.corpora import import_routes as read_routes
    from ir3de.files import atomic

    options.refuse_existing(target, force=force)
    if target.exists() and source.exists() and target.samefile(source):
        raise click.UsageError("SOURCE and OUT are the same file: give OUT another name")
    with out.spinner("reading"):
        found = read_routes(source, kind=kind)
    if unwritable := next((name for name in found.texts if "=" in name), None):
        raise InputError(
            f"{source}: the name {unwritable!r} has a =, which ends a name in NAME=WORDS: rename the route"
        )
    rows = [(text, name) for name, texts in found.texts.items() for text in texts]
    if rows:
        atomic.make_folder(target.parent)
        atomic.write(target, _write_rows(rows, target.suffix.lower()).encode())
    document = {
        "source": str(source),
        "kind": found.kind,
        "file": str(target) if rows else None,
        "rows": len(rows),
        "experts": [_describe(found, name) for name in found.texts],
        "default": found.default,
        "left_out": list(found.left_out),
        "fit": " ".join(fit := write_fit(found, target)),
        "config": " ".join(config := write_config(found)) or None,
    }
    out.show(document, _view(document, target, fit, config))


def _describe(found: ImportedRoutes, name: str) -> dict[str, Any]:
    model = found.models.get(name)
    return {
        "name": name,
        "utterances": len(found.texts[name]),
        "description": found.descriptions.get(name),
        "model": model and model.name,
        "base_url": model and model.base_url,
    }


def _write_rows(rows: list[tuple[str, str]], suffix: str) -> str:
    if suffix == ".jsonl":
        return "".join(json.dumps({TEXT: text, LABEL: name}, ensure_ascii=False) + "\n" for text, name in rows)
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator="\n").writerows([(TEXT, LABEL), *rows])
    return written.getvalue()


def write_fit(found: ImportedRoutes, target: Path) -> list[str]:
    """The command that fits a router on the labelled file and the descriptions, in parts for a line each."""
    alone = [shlex.quote(name) for name, texts in found.texts.items() if not texts]
    labelled = [shlex.quote(str(target))] if any(found.texts.values()) else []
    parts = [" ".join(["ir3de fit", ROUTER, *labelled, *alone, *([f"--label {LABEL}"] if labelled else [])])]
    parts += [f"--describe {shlex.quote(f'{name}={words}')}" for name, words in found.descriptions.items()]
    return parts + ([f"--default {shlex.quote(found.default)}"] if found.default else [])


def write_config(found: ImportedRoutes) -> list[str]:
    """The command that begins the gateway's configuration, in parts; none if the source names no model."""
    if not found.models:
        return []
    parts = [f"ir3de config init --router {ROUTER}"]
    for place, name in enumerate(found.texts):
        model = found.models.get(name)
        address = (model and model.base_url) or f"http://127.0.0.1:{FIRST_PORT + place}/v1"
        parts.append(f"--expert {shlex.quote(f'{name}={address}' + (f'#{model.name}' if model else ''))}")
    return parts


def _view(document: Mapping[str, Any], target: Path, fit: list[str], config: list[str]) -> Iterator[Block]:
    experts = document["experts"]
    yield line((f"{len(experts):,} route{'s' * (len(experts) > 1)} of {KINDS[document['kind']]}", "bold"))
    columns = ["expert", "utterances", "description", *(["model"] if config else [])]
    rows: list[list[Block]] = [
        [
            line((printable(one["name"]), "bold")),
            f"{one['utterances']:,}",
            line((one_line(one["description"] or "–", MAX_WORDS_CHARS), "" if one["description"] else FAINT)),
            *([printable(one["model"] or "–")] if config else []),
        ]
        for one in experts
    ]
    yield from ("", short_table(*columns, rows=rows, right=("utterances",)))
    if document["left_out"]:
        yield heading("left out")
        yield facts(("–", printable(sentence)) for sentence in document["left_out"])
    yield ""
    if document["file"]:
        yield Result(saved_line(target, target.stat().st_size, f"{document['rows']:,} rows saved to"))
    else:
        yield Result(line((f"{target} was not written: there are descriptions, and no utterances", "")))
    yield hint(printable(CONTINUED.join(fit)))
    if config:
        yield hint(printable(CONTINUED.join(config)), "then:")
