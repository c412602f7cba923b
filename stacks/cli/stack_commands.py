"""`gpuform stack`: make, list, select, rename and remove stacks."""

import json
from typing import Any

import click

from gpuform.stacks.cli.locking import lock_flag, patience
from gpuform.stacks.cli.opening import opened_for_change, workspace_of
from gpuform.stacks.cli.passphrase import passphrase_of
from gpuform.stacks.cli.session import Session, common_flags, session, stack_flags
from gpuform.stacks.cli.stack_history_command import history
from gpuform.stacks.cli.stack_output_command import output
from gpuform.stacks.cli.stack_secrets_command import change_secrets_provider
from gpuform.stacks.cli.stack_transfer_commands import export, import_state
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.stack_rename import rename_stack
from gpuform.stacks.engine.state import load_checkpoint


@click.group(invoke_without_command=True)
@stack_flags
@click.pass_context
def stack(context: click.Context) -> None:
    """Make, list, select, rename, remove and read stacks.

    A stack is one instance of the project, with its own configuration and state.

    \b
    Examples:
      gpuform stack init dev
      gpuform stack output --json
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (output, export, import_state, history, change_secrets_provider):
    stack.add_command(_command)


@stack.command()
@click.argument("name")
@common_flags
def init(name: str) -> None:
    """Make an empty stack and select it.

    Writes Pulumi.NAME.yaml with the salt of its secrets, and an empty state. The passphrase comes
    from PULUMI_CONFIG_PASSPHRASE or PULUMI_CONFIG_PASSPHRASE_FILE, or is asked.

    \b
    Example:
      gpuform stack init dev
    """
    with session() as current:
        _init(workspace_of(current), name, current)


@stack.command("ls")
@click.option("--json", "as_json", is_flag=True, help="A JSON list instead of a table.")
@common_flags
def list_stacks(as_json: bool) -> None:
    """List the project's stacks.

    \b
    Example:
      gpuform stack ls --json
    """
    with session() as current:
        workspace = workspace_of(current)
        selected = workspace.selected()
        rows = [_row(workspace, name, selected) for name in workspace.stacks()]
        if as_json:
            current.screen.print(json.dumps(rows, indent=2))
            return
        width = max([len(row["name"]) for row in rows] + [4]) + 1
        current.screen.print(f"{'NAME':<{width}}  RESOURCES  LAST UPDATE")
        for row in rows:
            name = row["name"] + ("*" if row["current"] else "")
            current.screen.print(f"{name:<{width}}  {row['resourceCount']:>9}  {row['lastUpdate']}")


@stack.command()
@click.argument("name")
@click.option("--create", "-c", is_flag=True, help="Make the stack if there is none.")
@common_flags
def select(name: str, create: bool) -> None:
    """Select the stack that other commands work on.

    The choice is kept where the Pulumi CLI keeps it, so both agree.

    \b
    Example:
      gpuform stack select --create dev
    """
    with session() as current:
        workspace = workspace_of(current)
        if create and name.rsplit("/", 1)[-1] not in workspace.stacks():
            _init(workspace, name, current)
            return
        workspace.select(name)


@stack.command("rm")
@click.argument("name", required=False)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option(
    "--force",
    "-f",
    is_flag=True,
    help="Forget its resources too; they go on existing, and costing.",
)
@lock_flag
@stack_flags
def remove(name: str | None, yes: bool, force: bool) -> int:
    """Remove a stack with its settings and history.

    Refused while the stack has resources: `gpuform destroy` deletes those.

    \b
    Example:
      gpuform stack rm dev --yes
    """
    with session() as current:
        workspace = workspace_of(current)
        name = workspace.resolve(name or current.stack)
        screen = current.screen
        if not yes and not screen.interactive:
            raise EngineError(
                f"removing stack '{name}' wants a confirmation, and nobody is here to give it",
                hint="add --yes",
            )
        if not yes:
            answer = screen.ask(f"This removes stack {name}. Type its name to go on: ")
            if answer != name:
                screen.print("Nothing was changed.")
                return 1
        workspace.remove(name, force=force, patience=patience(screen))
        screen.print(f"Stack {name} is removed.")
        return 0


@stack.command()
@click.argument("name")
@lock_flag
@stack_flags
def rename(name: str) -> None:
    """Give the stack another name, and select it.

    Its state, settings and history go along; nothing changes on a platform. Resources whose names
    the program makes from the stack's name are made anew by the next `up`.

    \b
    Example:
      gpuform stack rename staging --stack dev
    """
    with session() as current, opened_for_change(current) as opened:
        new = name.rsplit("/", 1)[-1]
        if new == opened.name:
            raise EngineError(f"the stack's name is '{new}' already")
        rename_stack(opened, new, current.environ, patience(current.screen))
        current.screen.print(f"Stack {opened.name} is now {new}, and selected.")


def _init(workspace: Workspace, name: str, current: Session) -> None:
    name = name.rsplit("/", 1)[-1]
    workspace.init(name, passphrase_of(workspace, current.screen, twice=True))
    current.screen.print(f"Stack {name} is made and selected.")


def _row(workspace: Workspace, name: str, selected: str | None) -> dict[str, Any]:
    data = workspace.backend.read(workspace.project.name, name)
    latest = load_checkpoint(data).latest if data is not None else {}
    resources = latest.get("resources") or []
    return {
        "name": name,
        "current": name == selected,
        "lastUpdate": (latest.get("manifest") or {}).get("time", "") if resources else "",
        "resourceCount": len(resources),
    }
