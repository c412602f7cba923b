"""`gpuform completion`: what makes a shell complete gpuform's commands."""

import click

from gpuform.stacks.cli.session import common_flags, session


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common_flags
def completion(shell: str) -> None:
    """Print the script that makes a shell complete gpuform's commands.

    It completes commands, flags and pages of `gpuform help`, and for `gpuform offers` what the
    platforms offered lately.

    \b
    Install it, once for each user:
      bash (4.4 or newer):  echo 'eval "$(gpuform completion bash)"' >> ~/.bashrc
      zsh:                  echo 'eval "$(gpuform completion zsh)"' >> ~/.zshrc
      fish:                 gpuform completion fish > ~/.config/fish/completions/gpuform.fish

    In zsh, the line comes after `compinit`. A new shell completes with Tab.

    \b
    Examples:
      eval "$(gpuform completion bash)"
      gpuform completion fish > ~/.config/fish/completions/gpuform.fish
    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - not for help

    chosen = get_completion_class(shell)
    assert chosen is not None  # noqa: S101 - click has the three
    root = click.get_current_context().find_root().command
    with session() as current:
        # By this variable the shell asks `gpuform` how a line goes on; click answers.
        current.screen.write(chosen(root, {}, "gpuform", "_GPUFORM_COMPLETE").source() + "\n")
