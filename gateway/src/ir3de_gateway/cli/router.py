"""router history, diff, rollback: the versions of a gateway's router, in its state folder."""

from __future__ import annotations

import getpass
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from ir3de.cli.plugins import FAINT, Output, facts, heading, hint, line, output_options, percent, table
from ir3de.errors import InputError
from ir3de_gateway.admin.candidate import roll_back_folder
from ir3de_gateway.admin.state import AUDIT, SHARED_MARK, STATE, VERSIONS, StateFolder
from ir3de_gateway.admin.version_diff import compare_versions, find_pair
from ir3de_gateway.admin.versions import describe_versions, read_versions
from ir3de_gateway.api_errors import ApiError

DIGEST_CHARS = 12  # shown of a digest

folder_argument = click.argument("state", metavar="STATE", type=click.Path(path_type=Path))


@click.group()
def router() -> None:
    """Show and undo changes of a gateway's router.

    Every router that went live is a version. STATE is the gateway's state folder, ir3de-state next to its configuration
    unless another one is named there. A gateway that serves notices a rollback within a second.

    \b
    Example:
      ir3de router history ir3de-state
    """


@router.command()
@folder_argument
@output_options
def history(state: Path, out: Output) -> None:
    """List the routers that went live: who put them there, when and why, and how good they are.

    \b
    Example:
      ir3de router history ir3de-state
    """
    folder = _open(state)
    versions = read_versions(folder)
    rows = describe_versions(folder, versions[-1].digest if versions else "")
    out.show({"state": str(state), "versions": rows}, _view_history(rows, state))


@router.command()
@folder_argument
@click.argument("before", metavar="[FROM]", default="")
@click.argument("after", metavar="[TO]", default="")
@click.option(
    "--traffic", type=click.Path(path_type=Path), metavar="FOLDER", help="A feedback folder: count changed decisions."
)
@output_options
def diff(state: Path, before: str, after: str, traffic: Path | None, out: Output) -> None:
    """Compare two versions, by number or digest; by default the live one with the one before.

    \b
    Examples:
      ir3de router diff ir3de-state
      ir3de router diff ir3de-state 3 5 --traffic feedback
    """
    folder = _open(state)
    try:
        found = compare_versions(folder, *find_pair(folder, before, after), traffic)
    except ApiError as error:
        raise _explain(error) from None
    out.show(found, _view_diff(found))


@router.command()
@folder_argument
@click.option("--to", "wanted", metavar="VERSION", default="", help="Its number or digest; by default the one before.")
@click.option("--why", default="", help="The reason, for the history.")
@output_options
def rollback(state: Path, wanted: str, why: str, out: Output) -> None:
    """Serve an earlier version again. A gateway that serves from STATE takes it within a second.

    \b
    Examples:
      ir3de router rollback ir3de-state --why "worse answers since Monday"
      ir3de router rollback ir3de-state --to 3
    """
    folder = _open(state)
    if (folder.path / SHARED_MARK).exists():
        raise InputError(
            f"{state} is a copy of what the gateway's shared store has: roll back with POST /admin/router/rollback"
        )
    try:
        version = roll_back_folder(folder, wanted, f"user {getpass.getuser()}", why)
    except ApiError as error:
        raise _explain(error) from None
    digest = version.digest[:DIGEST_CHARS]
    out.show(
        {"state": str(state), "version": version.number, "digest": version.digest},
        [line((f"version {version.number}", "bold"), (f"  {digest}  serves again", ""))],
    )
    out.note(hint(f"ir3de router history {state}"))


def _open(path: Path) -> StateFolder:
    folder = path.expanduser()
    if not any((folder / name).is_file() for name in (VERSIONS, STATE, AUDIT)):
        raise InputError(
            f"{path} is not the state folder of a gateway: it holds no {VERSIONS}. Name the folder `ir3de-state` next "
            "to its configuration, or the one in `state` there"
        )
    return StateFolder(folder)


def _explain(error: ApiError) -> InputError:
    return InputError(error.message.replace("GET /admin/router/history", "`ir3de router history`"))


def _view_history(rows: list[dict[str, Any]], state: Path) -> Iterator[Any]:
    if not rows:
        yield "no router has gone live here yet"
        return
    shown = [
        (
            str(row["number"]),
            "live" if row["live"] else "kept" if row["kept"] else "",
            row["digest"][:DIGEST_CHARS],
            row["time"][:16].replace("T", " "),
            row["action"],
            row["who"] or "–",
            _write_accuracy(row["proof"]),
            row["why"],
        )
        for row in rows
    ]
    columns = ("version", "", "digest", "time (UTC)", "what", "who", "accuracy", "why")
    yield table(*columns, right=("version", "accuracy"), rows=shown)
    if sum(row["kept"] for row in rows) > 1:
        yield hint(f"ir3de router diff {state}", "what changed:")


def _write_accuracy(proof: Mapping[str, Any]) -> str:
    return "–" if proof.get("accuracy") is None else percent(proof["accuracy"])


def _view_diff(found: Mapping[str, Any]) -> Iterator[Any]:
    one, other = found["from"], found["to"]
    yield line(
        (f"version {one['number']} → {other['number']}", "bold"),
        (f"  {one['digest'][:DIGEST_CHARS]} → {other['digest'][:DIGEST_CHARS]}", FAINT),
    )
    rows = []
    for what in ("experts", "contributions"):
        changed = found[what]
        if changed is None:
            rows.append((what, "not known: a router is no longer kept"))
            continue
        rows += [(what, f"{how}: {', '.join(names)}") for how, names in changed.items() if names]
        rows += [(what, "the same")] if not any(changed.values()) else []
    rows.append(("prompts", " → ".join("–" if one is None else f"{one:,}" for one in found["prompts"])))
    rows.append(("accuracy", " → ".join(map(_write_accuracy, found["proof"]))))
    if found["traffic"] is not None:
        traffic = found["traffic"]
        counted = f"{traffic['different']:,} of {traffic['requests']:,} requests" if traffic["requests"] else ""
        rows.append(("decisions", f"differ on {counted}" if counted else traffic["unknown"]))
        rows += [("", f"{one['from']} → {one['to']}: {one['requests']:,}") for one in traffic["moves"]]
    yield facts(rows)
    if found["settings"]:
        yield heading("settings")
        yield facts((name, f"{one} → {other}") for name, (one, other) in found["settings"].items())
