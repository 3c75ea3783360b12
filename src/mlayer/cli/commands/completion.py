"""`mlayer completion`: for the shell."""

from __future__ import annotations

import click

from mlayer.cli.options import NamedChoice

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=NamedChoice(SHELLS))
def command(shell: str) -> None:
    """Print a script that completes commands, options and columns.

    bash: add  eval "$(mlayer completion bash)"  to ~/.bashrc; zsh: the same with zsh, to ~/.zshrc; fish:
    mlayer completion fish > ~/.config/fish/completions/mlayer.fish
    """
    from click.shell_completion import get_completion_class

    from mlayer.cli.group import mlayer
    from mlayer.cli.show import printing

    kind = get_completion_class(shell)
    assert kind is not None
    with printing():
        click.echo(kind(mlayer, {}, "mlayer", "_MLAYER_COMPLETE").source())
