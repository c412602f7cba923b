"""`gpuform stack change-secrets-provider`: a new key for a stack's secrets."""

from typing import Any

import click

from gpuform.stacks.cli.flags import lock_flag
from gpuform.stacks.cli.opening import opened_for_change
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.secrets import is_passphrase, new_crypter, refuse_unknown
from gpuform.stacks.engine.stack import SecretsChange

NEW_PASSPHRASE = "GPUFORM_NEW_PASSPHRASE"  # noqa: S105 - the name of a variable


def checked_provider(
    _context: click.Context, _parameter: click.Parameter, given: str | None
) -> Any:
    """A callback of click: raises EngineError for what is no secrets provider."""
    refuse_unknown(given or "")
    return given


@click.command("change-secrets-provider")
@click.argument("provider", callback=checked_provider)
@lock_flag
@stack_flags
def change_secrets_provider(provider: str) -> None:
    """Protect the stack's secrets by a new passphrase, or by a key of a key management service.

    PROVIDER is `passphrase` or the URL of a key, as the Pulumi CLI has them: awskms://,
    azurekeyvault://, gcpkms://, hashivault://. The settings and the state are encrypted anew, both
    or neither, also when the provider is the present one. A new passphrase comes from
    GPUFORM_NEW_PASSPHRASE, or is asked, or is the first line of stdin.

    \b
    Examples:
      gpuform stack change-secrets-provider passphrase
      gpuform stack change-secrets-provider "awskms://alias/team?region=eu-central-1"
    """
    with session() as current, opened_for_change(current) as stack:
        stack.refuse_overtaken()
        new = new_crypter(provider, lambda: _new_passphrase(current))
        SecretsChange(stack.backend, stack.project, stack.name).make(
            stack.settings, stack.snapshot, stack.crypter, new
        )
        current.screen.print(
            f"The secrets of stack {stack.name} {_now(provider)}.\n"
            "Earlier states, in the .bak file and in .pulumi/backups, are encrypted as before."
        )


def _now(provider: str) -> str:
    if is_passphrase(provider):
        return "have a new passphrase: set PULUMI_CONFIG_PASSPHRASE to it"
    return f"are under a new key, which {provider.partition('?')[0]} protects"


def _new_passphrase(current: Session) -> str:
    given = current.environ.get(NEW_PASSPHRASE)
    if given is not None:
        return given
    ask = current.screen.passphrase()
    if ask is None:
        missing = "the new passphrase is missing"
        hint = f"Set {NEW_PASSPHRASE} to it (it may be empty), or write it to stdin."
        given = current.screen.given(missing, hint)
        if not given:
            raise EngineError(missing, hint=hint)
        return given.partition("\n")[0].strip()
    first = ask("Enter the new passphrase for the stack's secrets")
    if ask("Enter it again") != first:
        raise EngineError("the two passphrases differ", hint="run the command again")
    return first
