"""Secret values that a new file asks of the stack's configuration."""

from collections.abc import Mapping

from gpuform.stacks.cli.opening import workspace_of
from gpuform.stacks.cli.session import Session
from gpuform.stacks.engine.project import SECURE
from gpuform.stacks.operations.opening.selecting import passphrase_of
from gpuform.stacks.review.names import counted


def keep_secrets(secrets: Mapping[str, str], session: Session, *, wanted: bool) -> None:
    """Encrypts them into the stack's settings, or says how a person sets them."""
    screen = session.screen
    if not wanted:
        screen.warn("The file has no secrets. Before the next run give the stack these:")
        for key in secrets:
            screen.warn(f"  gpuform config set --secret {key} VALUE")
        screen.warn("or convert again with --force --set-secrets, which keeps them as they are.")
        return
    workspace = workspace_of(session)
    stack = workspace.open(session.stack, passphrase_of(workspace, screen.passphrase()))
    for key, value in secrets.items():
        stack.settings.set(key, {SECURE: stack.crypter.encrypt(value)})
    stack.settings.save()
    told = counted(len(secrets), "secret value")
    screen.print(
        f"{told} {'is' if len(secrets) == 1 else 'are'} kept in {stack.settings.path.name}."
    )
