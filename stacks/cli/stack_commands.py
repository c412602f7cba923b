"""`gpuform stack`: make, list, select, remove and read stacks."""

import json
from pathlib import Path
from typing import Any

import click

from gpuform.stacks.cli.passphrase import passphrase_of
from gpuform.stacks.cli.session import Session, common_flags, session, stack_flags
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.stack import StackNotFound, Workspace
from gpuform.stacks.engine.state import load_checkpoint
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.review.outputs_text import outputs_lines, shown

_SHOW_SECRETS = click.option(
    "--show-secrets", is_flag=True, help="Show secret values in the clear."
)


@click.group(invoke_without_command=True)
@stack_flags
@click.pass_context
def stack(context: click.Context) -> None:
    """Make, list, select, remove and read stacks.

    A stack is one instance of the project, with its own configuration and state.

    \b
    Examples:
      gpuform stack init dev
      gpuform stack output --json
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


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
        _init(_workspace(current), name, current)


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
        workspace = _workspace(current)
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
        workspace = _workspace(current)
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
@stack_flags
def remove(name: str | None, yes: bool, force: bool) -> int:
    """Remove a stack with its settings and history.

    Refused while the stack has resources: `gpuform destroy` deletes those.

    \b
    Example:
      gpuform stack rm dev --yes
    """
    with session() as current:
        workspace = _workspace(current)
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
        workspace.remove(name, force=force)
        screen.print(f"Stack {name} is removed.")
        return 0


@stack.command()
@click.argument("name", required=False)
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of text.")
@_SHOW_SECRETS
@stack_flags
def output(name: str | None, as_json: bool, show_secrets: bool) -> None:
    """Show the stack's outputs, or the one named.

    A single text is printed as it is, ready for a file.

    \b
    Examples:
      gpuform stack output
      gpuform stack output kubeconfig --show-secrets > kubeconfig.yaml
    """
    with session() as current:
        workspace = _workspace(current)
        opened = workspace.open(current.stack, passphrase_of(workspace, current.screen))
        outputs: PropertyMap = next(
            (r.outputs for r in opened.snapshot.resources if r.type == STACK_TYPE), {}
        )
        if name is None:
            _print_outputs(current, outputs, as_json=as_json, show_secrets=show_secrets)
            return
        if name not in outputs:
            known = f"its outputs: {', '.join(sorted(outputs))}" if outputs else "it has none yet"
            raise EngineError(f"stack '{opened.name}' has no output '{name}'", hint=known)
        value = shown(outputs[name], show_secrets=show_secrets)
        is_text = isinstance(value, str) and not as_json
        current.screen.print(value if is_text else json.dumps(value, ensure_ascii=False))


@stack.command()
@click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of stdout.",
)
@_SHOW_SECRETS
@stack_flags
def export(file: Path | None, show_secrets: bool) -> None:
    """Write the stack's state as Pulumi's deployment JSON.

    Secrets stay encrypted unless --show-secrets is given.

    \b
    Example:
      gpuform stack export --file dev.json
    """
    with session() as current:
        workspace = _workspace(current)
        document = _deployment(workspace, current, show_secrets=show_secrets)
        text = json.dumps(document, indent=4, ensure_ascii=False)
        if file is None:
            current.screen.print(text)
            return
        _write(file, text + "\n", private=show_secrets)


def _workspace(current: Session) -> Workspace:
    return Workspace.find(Path.cwd(), current.environ)


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


def _print_outputs(
    current: Session, outputs: PropertyMap, *, as_json: bool, show_secrets: bool
) -> None:
    if as_json:
        plain = {key: shown(v, show_secrets=show_secrets) for key, v in sorted(outputs.items())}
        current.screen.print(json.dumps(plain, indent=2, ensure_ascii=False))
        return
    lines = list(outputs_lines(outputs, show_secrets=show_secrets, paint=current.screen.paint))
    current.screen.print("\n".join(lines) if lines else "The stack has no outputs.")


def _deployment(workspace: Workspace, current: Session, *, show_secrets: bool) -> dict[str, Any]:
    name = workspace.resolve(current.stack)
    data = workspace.backend.read(workspace.project.name, name)
    if data is None:
        raise StackNotFound(f"no stack named '{name}' in {workspace.backend.url}")
    if show_secrets:
        opened = workspace.open(name, passphrase_of(workspace, current.screen))
        data = opened.snapshot.to_json(opened.crypter, show_secrets=True)
    document = json.loads(data)
    made = {"version": document["version"], "deployment": load_checkpoint(data).latest}
    if document.get("features"):
        made["features"] = document["features"]
    return made


def _write(file: Path, text: str, *, private: bool) -> None:
    try:
        with file.open("w", encoding="utf-8") as stream:
            if private:
                file.chmod(0o600)
            stream.write(text)
    except OSError as error:
        raise EngineError(f"{file} cannot be written: {error.strerror}") from error
