"""`gpuform state`: look at a stack's state, and edit it where nothing else helps."""

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.commands.state.edit_commands import (
    delete,
    protect,
    rename,
    taint,
    unprotect,
    untaint,
)
from gpuform.stacks.cli.commands.state.move_command import move
from gpuform.stacks.cli.commands.state.recover_command import recover
from gpuform.stacks.cli.commands.state.repair_commands import repair, upgrade
from gpuform.stacks.cli.flags import AliasedGroup
from gpuform.stacks.cli.opening import sealed_snapshot, workspace_of
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.engine.project import yaml_text
from gpuform.stacks.engine.state import Snapshot, locate
from gpuform.stacks.operations.opening.selecting import passphrase_of
from gpuform.stacks.review.text.state_text import entry_document, state_lines, state_rows


@click.group(cls=AliasedGroup, invoke_without_command=True)
@stack_flags
@click.pass_context
def state(context: click.Context) -> None:
    """Look at a stack's state and edit it.

    The state says which objects on the platforms are the stack's. Edits change only what it says:
    nothing is created, changed or deleted on a platform. Each keeps the state that was there as a
    .bak file. Resources are named by their URN, or by a name that only one of them has.

    \b
    Examples:
      gpuform state list
      gpuform state delete train --yes
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (
    delete,
    protect,
    unprotect,
    taint,
    untaint,
    rename,
    move,
    recover,
    repair,
    upgrade,
):
    state.add_command(_command)


@state.command("list")
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of a table.")
@stack_flags
def list_entries(as_json: bool) -> None:
    """List every entry of the state: URN, id and what is special about it.

    \b
    Example:
      gpuform state list --stack dev
    """
    with session() as current:
        snapshot = sealed_snapshot(current)
        if not as_json:
            lines = state_lines(snapshot.resources, snapshot.pending_operations)
            current.screen.print("\n".join(lines))
            return
        pending = [{"urn": o.resource.urn, "type": o.type} for o in snapshot.pending_operations]
        document = {"resources": state_rows(snapshot.resources), "pendingOperations": pending}
        current.screen.print(format_json(document, indent=2))


@state.command()
@click.argument("resource")
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of YAML.")
@click.option("--show-secrets", is_flag=True, help="Show secret values in the clear.")
@stack_flags
def show(resource: str, as_json: bool, show_secrets: bool) -> None:
    """Show what the state says of one resource.

    RESOURCE is a URN, or a name. Old objects of it that wait for their deletion are shown, too.

    \b
    Examples:
      gpuform state show train
      gpuform state show train --json --show-secrets
    """
    with session() as current:
        entries = locate(_state(current, show_secrets=show_secrets).resources, resource)
        found = [entry_document(entry, show_secrets=show_secrets) for entry in entries]
        if as_json:
            document = found[0] if len(found) == 1 else found
            current.screen.print(format_json(document, indent=2))
        else:
            current.screen.write("---\n".join(map(yaml_text.dump, found)))


def _state(current: Session, *, show_secrets: bool) -> Snapshot:
    """With its secrets, or without the need of a passphrase."""
    if not show_secrets:
        return sealed_snapshot(current)
    workspace = workspace_of(current, runs_program=False)
    return workspace.open(
        current.stack, passphrase_of(workspace, current.screen.passphrase())
    ).snapshot
