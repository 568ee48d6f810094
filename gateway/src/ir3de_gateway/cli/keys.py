"""keys new, hash: keys for clients of the gateway; list, add, rotate, remove: those of a gateway that serves."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import click

from ir3de.cli.plugins import FAINT, Output, json_text, line, output_options, table
from ir3de.errors import InputError
from ir3de_gateway.cli.admin_request import send_admin_request
from ir3de_gateway.keys.key_changes import OVERLAP_S, hash_secret, make_secret
from ir3de_gateway.keys.keys_file import SCOPES, KeyLimits

F = TypeVar("F", bound=Callable[..., Any])


@click.group()
def keys() -> None:
    """Make keys for clients of the gateway.

    The keys file (`server.keys_file` in the configuration) holds hashes of keys, what each key may do, and how much.
    `new` and `hash` print entries for it. The other commands change the keys of a gateway that serves, with its admin
    token, which they read from IR3DE_ADMIN_TOKEN.

    \b
    Examples:
      ir3de keys new research
      ir3de keys rotate research --url https://gateway.example
    """


def gateway_options(command: F) -> F:
    """The options of commands for a gateway that serves."""
    url = click.option(
        "--url", default="http://127.0.0.1:8100", envvar="IR3DE_URL", show_default=True, help="The gateway's address."
    )
    variable = click.option(
        "--token-env", default="IR3DE_ADMIN_TOKEN", show_default=True, metavar="NAME",
        help="The variable that holds the admin token, or a key with the scope admin.",
    )  # fmt: skip
    return url(variable(command))


def limit_options(command: F) -> F:
    """An option for each limit of a key."""
    for name, field in reversed(KeyLimits.model_fields.items()):
        kind = float if name.startswith("budget") else int
        command = click.option(f"--{name.replace('_', '-')}", name, type=kind, help=field.description)(command)
    return command


@keys.command()
@click.argument("name")
@output_options
def new(name: str, out: Output) -> None:
    """Make a key, and print it once, with its entry for the keys file.

    The key is random and is not saved. Give it to its owner, and put the entry into the keys file.

    \b
    Examples:
      ir3de keys new research
      ir3de keys new research --json
    """
    _show(name, make_secret(), out, shows_key=True)


@keys.command()
@click.argument("name")
@output_options
def hash(name: str, out: Output) -> None:  # noqa: A001 - the name of the command
    """Print the entry for a key that exists. The key is read from standard input.

    \b
    Example:
      ir3de keys hash research < key.txt
    """
    key = sys.stdin.readline().strip()
    if not key:
        raise InputError("there is no key on standard input: ir3de keys hash NAME < FILE")
    _show(name, key, out, shows_key=False)


def _show(name: str, key: str, out: Output, *, shows_key: bool) -> None:
    if not name.isprintable() or not 0 < len(name) <= 200:
        raise InputError(f"a key needs a printable name of 1 to 200 characters, found {name[:200]!r}")
    digest = hash_secret(key)
    entry = {"name": name, "hash": digest}
    out.json({"key": key, "entry": entry} if shows_key else {"entry": entry})
    if out.as_json:
        return
    if shows_key:
        out.note(line(("the key, which is shown only now:", FAINT)))
        click.echo(key)
        out.note("", line(("its entry in the keys file (server.keys_file), below `keys:`:", FAINT)))
    click.echo(f"  - name: {json_text(name)}\n    hash: {digest}")


# keys of a gateway that serves -----------------------------------------------------------------------------------


@keys.command("list")
@gateway_options
@output_options
def list_keys(url: str, token_env: str, out: Output) -> None:
    """List the keys of a gateway that serves, and what they have used today.

    \b
    Example:
      ir3de keys list --url https://gateway.example
    """
    found = send_admin_request(url, token_env, "GET", "/admin/keys")
    rows = [[row["name"], row["origin"], _describe_state(row), *_describe_use(row)] for row in found["data"]]
    columns, numbers = ("key", "from", "state"), ("requests today", "cost today")
    out.show(found, [table(*columns, *numbers, right=numbers, rows=rows)])


@keys.command()
@click.argument("name")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(SCOPES), help="What it may do; may be repeated.")
@click.option("--expert", "experts", multiple=True, metavar="NAME", help="An expert that may answer it; repeatable.")
@click.option("--expires", metavar="DAY", help="The last day (UTC), or a moment such as 2027-01-31T12:00:00Z.")
@limit_options
@gateway_options
@output_options
def add(
    name: str, scopes: tuple[str, ...], experts: tuple[str, ...], expires: str | None, url: str, token_env: str,
    out: Output, **limits: float | None,
) -> None:  # fmt: skip
    """Add a key to a gateway that serves, and print it once.

    \b
    Examples:
      ir3de keys add research --expert law --requests-per-minute 60
      ir3de keys add ci --scope models --expires 2027-01-31
    """
    given = {"scopes": scopes, "experts": experts, "expires": expires}
    body: dict[str, Any] = {"name": name, **{field: value for field, value in given.items() if value}}
    if some := {field: value for field, value in limits.items() if value is not None}:
        body["limits"] = some
    _show_made(send_admin_request(url, token_env, "POST", "/admin/keys", body), out)


@keys.command()
@click.argument("name")
@click.option(
    "--overlap", type=float, default=OVERLAP_S, show_default=True, metavar="SECONDS", help="How long the old one works."
)
@gateway_options
@output_options
def rotate(name: str, overlap: float, url: str, token_env: str, out: Output) -> None:
    """Give a key a new secret, and print it once. The one before works until the overlap is over.

    \b
    Example:
      ir3de keys rotate research --overlap 3600
    """
    body = {"name": name, "rotate": True, "overlap": overlap}
    _show_made(send_admin_request(url, token_env, "POST", "/admin/keys", body), out)


@keys.command()
@click.argument("name")
@gateway_options
@output_options
def remove(name: str, url: str, token_env: str, out: Output) -> None:
    """Remove a key from a gateway that serves.

    \b
    Example:
      ir3de keys remove research
    """
    found = send_admin_request(url, token_env, "DELETE", f"/admin/keys/{quote(name, safe='')}")
    out.show(found, [f"removed {json_text(name)}"])


def _show_made(found: Mapping[str, Any], out: Output) -> None:
    out.json(dict(found))
    if out.as_json:
        return
    out.note(line(("the key, which is shown only now:", FAINT)))
    click.echo(found["key"])
    if until := found.get("previous_expires"):
        out.note(line((f"the one before works until {until}", FAINT)))
    if pending := found.get("pending"):
        out.note(line((f"{pending} of the workers will know it within two seconds", FAINT)))


def _describe_state(row: Mapping[str, Any]) -> str:
    states = ["disabled"] if row["disabled"] else []
    states += [f"until {row['expires']}"] if row["expires"] else []
    states += [f"the secret before until {row['previous_expires']}"] if row.get("previous_expires") else []
    return ", ".join(states) or "valid"


def _describe_use(row: Mapping[str, Any]) -> list[str]:
    used = row.get("used", {}).get("day", {})
    return [str(used.get("requests", "")), f"{used['cost']:g}" if "cost" in used else ""]
