"""Run `gpuform config`: list, read and change the configuration in Pulumi.<stack>.yaml."""

import getpass
import json
from pathlib import Path

import click

from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import MASK, format_json
from gpuform.stacks.cli.flags import AliasedGroup, emulated_state_flag
from gpuform.stacks.cli.session import Session, add_stack_flags, open_session
from gpuform.stacks.engine.project import (
    Project,
    StackSettings,
    get_value_at,
    is_secure,
    remove_value_at,
    split_key,
    to_config_text,
)
from gpuform.stacks.engine.stack import Stack, Workspace
from gpuform.stacks.engine.value_json import Json
from gpuform.stacks.operations.opening.selected_stack import create_passphrase_finder

_path_flag = click.option(
    "--path", is_flag=True, help="KEY is a path into an object or list: servers[0].name."
)


_show_secrets_flag = click.option(
    "--show-secrets", is_flag=True, help="Show secret values in plain text."
)
_json_flag = click.option(
    "--json", "-j", "as_json", is_flag=True, help="Print a JSON object instead of a table."
)


@click.group(cls=AliasedGroup, invoke_without_command=True)
@_show_secrets_flag
@_json_flag
@emulated_state_flag
@add_stack_flags
@click.pass_context
def config(context: click.Context, show_secrets: bool, as_json: bool) -> None:
    """List, read and change a stack's configuration.

    Keys are `name` for the project's own, or `namespace:name`.

    \b
    Examples:
      gpuform config
      gpuform config set gpus 24
      gpuform config set together:apiKey
    """
    if context.invoked_subcommand is None:
        with open_session() as session:
            _print_config(session, show_secrets=show_secrets, as_json=as_json)


@config.command("ls")
@_show_secrets_flag
@_json_flag
@emulated_state_flag
@add_stack_flags
def list_values(show_secrets: bool, as_json: bool) -> None:
    """List the keys of a stack's configuration with their values, as `gpuform config` does.

    \b
    Example:
      gpuform config ls --json
    """
    with open_session() as session:
        _print_config(session, show_secrets=show_secrets, as_json=as_json)


@config.command("set")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--secret", is_flag=True, help="Encrypt the value with the stack's secrets provider.")
@click.option(
    "--plaintext",
    is_flag=True,
    help="Store the value in plain text (the default). Refused for keys that are declared secret.",
)
@_path_flag
@add_stack_flags
def set_value(key: str, value: str | None, secret: bool, plaintext: bool, path: bool) -> None:
    """Set a key to a value.

    Without VALUE the command reads it from stdin, so that a secret does not appear on the command
    line. Encrypts the value if the topology, Pulumi.yaml or a platform declares the key as secret,
    even without --secret. Refuses a key that nothing reads, and a value of another type than the
    declared one. With --path, true, false and whole numbers inside of an object or list keep their
    types.

    \b
    Examples:
      gpuform config set gpus 24
      gpuform config set together:apiKey < key.txt
      gpuform config set --path 'limits.gpus[0]' 16
    """
    from gpuform.stacks.operations.config_setting import ConfigSetting  # noqa: PLC0415 - not for help

    if secret and plaintext:
        raise click.UsageError("--secret and --plaintext cannot be combined")
    with open_session() as session:
        workspace, name = _find_stack(session)
        setting = ConfigSetting.from_key(
            workspace, name, key, by_path=path, secret=secret, plaintext=plaintext
        )
        # A secret on the command line would be in the shell's history.
        if value is None:
            value = _read_value(session, key, secret=setting.is_secret)
        setting.set(value, session.screen.create_passphrase_prompt())
        if setting.is_secret and not secret:
            config_key = setting.config_key
            session.screen.print(
                f"{config_key.name} is a secret ({config_key.declared}): its value is encrypted."
            )


@config.command("get")
@click.argument("key")
@_path_flag
@click.option("--json", "-j", "as_json", is_flag=True, help="Print JSON instead of text.")
@emulated_state_flag
@add_stack_flags
def get_value(key: str, path: bool, as_json: bool) -> None:
    """Print the value of a key, secret values in plain text.

    \b
    Examples:
      gpuform config get gpus
      gpuform config get --path 'limits.gpus[0]'
    """
    with open_session() as session:
        workspace, settings = _load_settings(session)
        root_key, steps = split_key(key) if path else (key, ())
        full_key = workspace.project.qualify_key(root_key)
        value = get_value_at(_merge_values(workspace.project, settings).get(full_key), steps)
        if path:
            full_key = workspace.project.qualify_key(key)
        if value is None:
            raise EngineError(
                f"the configuration key {full_key} has no value",
                hint=f"set one: gpuform config set {key} VALUE",
            )
        # Only a secret needs the passphrase.
        crypter = _open_stack(workspace, session).crypter if is_secure(value) else None
        value_text = to_config_text(value, crypter)
        if as_json:
            document = {"value": value_text, **_parse_object_value(value_text)}
            value_text = format_json({**document, "secret": is_secure(value)}, indent=2)
        session.screen.write(f"{value_text}\n")


@config.command("rm")
@click.argument("key")
@_path_flag
@add_stack_flags
def remove_value(key: str, path: bool) -> None:
    """Remove a key from the stack's configuration.

    \b
    Example:
      gpuform config rm gpus
    """
    with open_session() as session:
        _, settings = _load_settings(session)
        root, steps = split_key(key) if path else (key, ())
        if get_value_at(settings.get(root), steps) is None:
            raise EngineError(f"the configuration key {key} is not set in {settings.path.name}")
        if steps:
            settings.set(root, remove_value_at(settings.get(root), steps, root))
        else:
            settings.remove(root)
        settings.save()


def _find_stack(session: Session) -> tuple[Workspace, str]:
    """Return the workspace and the stack's name, after finishing a killed change of secrets."""
    workspace = Workspace.find(Path.cwd(), session.environ, runs_program=False)
    name = workspace.resolve(session.stack)
    # A killed change of the secrets provider may have left the settings half encrypted.
    workspace.finish_secrets_change(name, exclusive=False)
    return workspace, name


def _load_settings(session: Session) -> tuple[Workspace, StackSettings]:
    """Return the workspace and the selected stack's settings, after a killed change is finished."""
    workspace, name = _find_stack(session)
    return workspace, StackSettings.load(workspace.project, name)


def _open_stack(workspace: Workspace, session: Session) -> Stack:
    """Open the selected stack; asks for the passphrase on a terminal."""
    return workspace.open(
        session.stack,
        create_passphrase_finder(workspace, session.screen.create_passphrase_prompt()),
    )


def _merge_values(project: Project, settings: StackSettings) -> dict[str, Json]:
    """Return the stack's values by full key, with the project's defaults for the other keys."""
    defaults = {project.qualify_key(key): default.value for key, default in project.config.items()}
    return {
        **{key: value for key, value in defaults.items() if value is not None},
        **settings.config,
    }


def _print_config(session: Session, *, show_secrets: bool, as_json: bool) -> None:
    """Print the stack's values and the project's defaults, secrets masked by default.

    Declared secrets are masked even if the settings file has their values in plain text.
    """
    workspace, settings = _load_settings(session)
    project = workspace.project
    values = _merge_values(project, settings)
    hidden = {project.qualify_key(key) for key, default in project.config.items() if default.secret}
    hidden = (hidden - settings.config.keys()) | {k for k, v in values.items() if is_secure(v)}
    hidden |= _find_plaintext_secrets(project, settings)
    crypter = _open_stack(workspace, session).crypter if show_secrets and hidden else None
    shown_values = {
        key: MASK if key in hidden and not show_secrets else to_config_text(value, crypter)
        for key, value in sorted(values.items())
    }
    if as_json:
        session.screen.print(
            format_json(_build_document(shown_values, hidden, show_secrets), indent=2)
        )
        return
    # The project's own keys are shown as the commands take them, without the project.
    names = {key: key.removeprefix(f"{project.name}:") for key in shown_values}
    width = max([len(name) for name in names.values()] + [3])
    session.screen.print(f"{'KEY':<{width}}  VALUE")
    for key, value_text in shown_values.items():
        session.screen.print(f"{names[key]:<{width}}  {value_text}")


def _find_plaintext_secrets(project: Project, settings: StackSettings) -> set[str]:
    """Return the keys of secrets stored in plain text in the stack's file.

    If the topology has errors, secrets that only the topology declares are not found.
    """
    from gpuform.stacks.config_keys import ConfigKeys  # noqa: PLC0415 - not for help

    try:
        keys = ConfigKeys.from_project(project)
    except EngineError:  # in the topology: `gpuform validate` reports it
        keys = ConfigKeys.without_topology(project)
    return {problem.key for problem in keys.find_plaintext_secrets(settings)}


def _build_document(
    shown_values: dict[str, str], hidden: set[str], show_secrets: bool
) -> dict[str, Json]:
    """Build the document of `pulumi config --json`; hidden values need `show_secrets`."""
    document: dict[str, Json] = {}
    for key, value_text in shown_values.items():
        is_secret = key in hidden
        value: dict[str, Json] = {}
        if not is_secret or show_secrets:
            value = {"value": value_text, **_parse_object_value(value_text)}
        document[key] = {**value, "secret": is_secret}
    return document


def _parse_object_value(value_text: str) -> dict[str, Json]:
    """Return `objectValue` with the parsed JSON of an object or list; empty for other texts."""
    if not value_text.startswith(("{", "[")):
        return {}
    try:
        return {"objectValue": json.loads(value_text)}
    except ValueError:
        return {}


def _read_value(session: Session, key: str, *, secret: bool) -> str:
    """Ask for the value of a key on a terminal, without an echo for secrets; elsewhere read stdin.

    Raises EngineError for a terminal if questions are switched off. An empty stdin is an empty
    value.
    """
    if not session.screen.interactive:
        missing = f"the value of {key} is missing, and the command cannot ask for it here"
        hint = "write the value after the key, or to stdin"
        return session.screen.read_stdin(missing, hint).rstrip("\n")
    if secret:
        return getpass.getpass(f"{key}: ")
    return session.screen.ask(f"{key}: ")
