"""`gpuform stack change-secrets-provider`: a new passphrase."""

import click

from gpuform.stacks.cli.locking import lock_flag
from gpuform.stacks.cli.opening import opened_for_change
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.passphrase_change import PassphraseChange
from gpuform.stacks.engine.secrets import PASSPHRASE_PROVIDER

NEW_PASSPHRASE = "GPUFORM_NEW_PASSPHRASE"  # noqa: S105 - the name of a variable

_MEANT = (PASSPHRASE_PROVIDER, "default")  # which in this kind of backend is the same


@click.command("change-secrets-provider")
@click.argument("provider")
@lock_flag
@stack_flags
def change_secrets_provider(provider: str) -> None:
    """Protect the stack's secrets by a new passphrase.

    PROVIDER is `passphrase`. The settings and the state are encrypted anew, both or neither. The
    new passphrase comes from GPUFORM_NEW_PASSPHRASE, or is asked, or is the first line of stdin;
    the present one from where it always comes.

    \b
    Example:
      gpuform stack change-secrets-provider passphrase
    """
    if provider not in _MEANT:
        raise EngineError(
            f"gpuform protects secrets by a passphrase only, not by {_kind(provider)}",
            hint="Use the Pulumi CLI for this stack: `pulumi stack change-secrets-provider`. "
            "gpuform cannot run it afterwards.",
        )
    with session() as current, opened_for_change(current) as stack:
        change = PassphraseChange(stack.backend, stack.project, stack.name)
        change.make(stack.settings, stack.snapshot, stack.crypter, _new_passphrase(current))
        current.screen.print(
            f"The secrets of stack {stack.name} have a new passphrase: set "
            "PULUMI_CONFIG_PASSPHRASE to it.\n"
            "Earlier states, in the .bak file and in .pulumi/backups, still have the old one."
        )


def _kind(provider: str) -> str:
    """The provider without what may be private in its URL."""
    scheme, separator, _ = provider.partition("://")
    return f"{scheme}{separator}..." if separator else repr(provider)


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
