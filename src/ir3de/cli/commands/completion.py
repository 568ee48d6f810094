"""completion: the shell's side of the Tab key."""

from __future__ import annotations

import click

from ir3de.cli.options import output_options
from ir3de.cli.output import Output


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
