"""`gpuform config`: a stack's configuration, kept in Pulumi.<stack>.yaml."""

import getpass
import json
from pathlib import Path

import click

from gpuform.stacks.cli.passphrase import passphrase_of
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.stack import Stack, Workspace
from gpuform.stacks.engine.stack_settings import SECURE, StackSettings, is_secure, to_text
from gpuform.stacks.engine.value_json import Json


@click.group(invoke_without_command=True)
@click.option("--show-secrets", is_flag=True, help="Show secret values in the clear.")
@click.option("--json", "-j", "as_json", is_flag=True, help="A JSON object instead of a table.")
@stack_flags
@click.pass_context
def config(context: click.Context, show_secrets: bool, as_json: bool) -> None:
    """List, read and change a stack's configuration.

    Keys are `name` for the project's own, or `namespace:name`.

    \b
    Examples:
      gpuform config
      gpuform config set gpus 24
      gpuform config set --secret together:apiKey
    """
    if context.invoked_subcommand is None:
        with session() as current:
            _list(current, show_secrets=show_secrets, as_json=as_json)


@config.command("set")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--secret", is_flag=True, help="Encrypt the value with the stack's passphrase.")
@click.option(
    "--plaintext", is_flag=True, help="Keep the value in the clear, which is also the default."
)
@stack_flags
def set_value(key: str, value: str | None, secret: bool, plaintext: bool) -> None:
    """Set a key to a value.

    Without VALUE it is read from stdin, so that a secret need not stand on the command line.

    \b
    Examples:
      gpuform config set gpus 24
      gpuform config set --secret together:apiKey < key.txt
    """
    if secret and plaintext:
        raise click.UsageError("--secret and --plaintext exclude each other")
    with session() as current:
        workspace, settings = _settings(current)
        text = _read_value(current, key, secret=secret) if value is None else value
        if not secret:
            settings.set(key, text)
            settings.save()
            return
        # Opening the stack finds its encryption, and writes the salt to the file if it was lost.
        opened = _open(workspace, current)
        opened.settings.set(key, {SECURE: opened.crypter.encrypt(text)})
        opened.settings.save()


@config.command("get")
@click.argument("key")
@stack_flags
def get_value(key: str) -> None:
    """Print the value of a key, a secret one in the clear.

    \b
    Example:
      gpuform config get gpus
    """
    with session() as current:
        workspace = Workspace.find(Path.cwd(), current.environ)
        full = workspace.project.qualified_key(key)
        value = _values(workspace.project, _settings(current)[1]).get(full)
        if value is None:
            raise EngineError(
                f"the configuration key {full} has no value",
                hint=f"give it one: gpuform config set {key} VALUE",
            )
        crypter = _open(workspace, current).crypter if is_secure(value) else None
        current.screen.print(to_text(value, crypter))


@config.command("rm")
@click.argument("key")
@stack_flags
def remove_value(key: str) -> None:
    """Remove a key from the stack's configuration.

    \b
    Example:
      gpuform config rm gpus
    """
    with session() as current:
        _, settings = _settings(current)
        if not settings.remove(key):
            raise EngineError(f"the configuration key {key} is not set in {settings.path.name}")
        settings.save()


def _settings(current: Session) -> tuple[Workspace, StackSettings]:
    workspace = Workspace.find(Path.cwd(), current.environ)
    name = workspace.resolve(current.stack)
    workspace.finish_change_of_passphrase(name, exclusive=False)
    return workspace, StackSettings.load(workspace.project, name)


def _open(workspace: Workspace, current: Session) -> Stack:
    return workspace.open(current.stack, passphrase_of(workspace, current.screen))


def _values(project: Project, settings: StackSettings) -> dict[str, Json]:
    """By full key: what the stack sets, else the project's default."""
    defaults = {project.qualified_key(key): given.value for key, given in project.config.items()}
    return {
        **{key: value for key, value in defaults.items() if value is not None},
        **settings.config,
    }


def _list(current: Session, *, show_secrets: bool, as_json: bool) -> None:
    workspace, settings = _settings(current)
    project = workspace.project
    values = _values(project, settings)
    hidden = {project.qualified_key(key) for key, given in project.config.items() if given.secret}
    hidden = (hidden - settings.config.keys()) | {k for k, v in values.items() if is_secure(v)}
    crypter = _open(workspace, current).crypter if show_secrets and hidden else None
    shown = {
        key: "[secret]" if key in hidden and not show_secrets else to_text(value, crypter)
        for key, value in sorted(values.items())
    }
    if as_json:
        current.screen.print(json.dumps(_json(shown, hidden, show_secrets), indent=2))
        return
    names = {key: key.removeprefix(f"{project.name}:") for key in shown}
    width = max([len(name) for name in names.values()] + [3])
    current.screen.print(f"{'KEY':<{width}}  VALUE")
    for key, text in shown.items():
        current.screen.print(f"{names[key]:<{width}}  {text}")


def _json(shown: dict[str, str], hidden: set[str], show_secrets: bool) -> dict[str, Json]:
    """As `pulumi config --json`: a hidden value is left out."""
    made: dict[str, Json] = {}
    for key, text in shown.items():
        is_secret = key in hidden
        value: dict[str, Json] = {} if is_secret and not show_secrets else {"value": text}
        made[key] = {**value, "secret": is_secret}
    return made


def _read_value(current: Session, key: str, *, secret: bool) -> str:
    """From stdin; on a terminal a prompt, which shows nothing of a secret."""
    if not current.screen.interactive:
        missing = f"{key} is given no value, and nobody is asked here"
        hint = "give the value after the key, or write it to stdin"
        return current.screen.given(missing, hint).rstrip("\n")
    if secret:
        return getpass.getpass(f"{key}: ")
    return current.screen.ask(f"{key}: ")
