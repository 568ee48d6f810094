"""keys new, hash: keys for clients of the gateway."""

from __future__ import annotations

import hashlib
import secrets
import sys

import click

from ir3de.cli.plugins import FAINT, Output, json_text, line, output_options
from ir3de.errors import InputError

KEY_BEGINNING = "sk-ir3de-"  # some clients accept only keys that begin with sk-
KEY_BYTES = 32


@click.group()
def keys() -> None:
    """Make keys for clients of the gateway.

    The keys file (`server.keys_file` in the configuration) holds hashes of keys, what each key may do, and how much.

    \b
    Example:
      ir3de keys new research
    """


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
    key = KEY_BEGINNING + secrets.token_urlsafe(KEY_BYTES)
    _show(name, key, out, shows_key=True)


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
    digest = f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"
    entry = {"name": name, "hash": digest}
    out.json({"key": key, "entry": entry} if shows_key else {"entry": entry})
    if out.as_json:
        return
    if shows_key:
        out.note(line(("the key, which is shown only now:", FAINT)))
        click.echo(key)
        out.note("", line(("its entry in the keys file (server.keys_file), below `keys:`:", FAINT)))
    click.echo(f"  - name: {json_text(name)}\n    hash: {digest}")
