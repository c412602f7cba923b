"""From the flags of `orphans` to where to look."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuform.providers.actions import Settings
from gpuform.providers.catalog import platform_of
from gpuform.stacks.adopting.orphans import Question
from gpuform.stacks.cli.opening import workspace_of
from gpuform.stacks.cli.session import Session
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.operations.opening.passphrase import passphrase_of


def question_of(
    session: Session, platforms: Sequence[str], regions: Sequence[str], older_than: float
) -> tuple[Question, Path]:
    """The question, and the project's folder. Raises UnsupportedKind for no platform."""
    for each in platforms:
        platform_of(each)
    workspace = workspace_of(session)
    directory = workspace.project.directory
    config, secret_keys = config_of(session, workspace)
    settings = Settings(config=config.get, environ=session.environ)
    question = Question(
        backend=workspace.backend,
        settings=settings,
        platforms=platforms,
        regions=regions,
        older_than=older_than,
        secrets=[*settings.secrets(), *(config[key] for key in secret_keys)],
    )
    return question, directory


def config_of(session: Session, workspace: Workspace) -> tuple[Mapping[str, str], Sequence[str]]:
    """The configuration of the stack that is named or selected, and which keys of it are secret.

    None where there is no such stack.
    """
    if session.stack is None and workspace.selected() not in workspace.stacks():
        return {}, []
    stack = workspace.open(session.stack, passphrase_of(workspace, session.screen.passphrase()))
    return stack.settings.program_config(stack.crypter)
