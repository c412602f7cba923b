"""`gpuform new ci`: the workflows of a repository, written where its forge looks for them."""

from dataclasses import dataclass
from pathlib import Path

import click

from gpuform.stacks.cli.session import Session
from gpuform.stacks.code_hosts.asked import ForgeName
from gpuform.stacks.engine.project import StackSettings, find_project
from gpuform.stacks.engine.store import backend_url
from gpuform.stacks.projects import require_here, write_files
from gpuform.stacks.workflow_files import Clouds, Repository, workflow_files

_NEXT = {
    "github": "which variables, secrets and rules to set",
    "gitlab": "which variables and which schedule to set",
}


@dataclass(frozen=True, slots=True)
class WorkflowOptions:
    """What the workflows are for. The forge and the backend's URL may be left to be found."""

    stack: str
    branch: str
    forge: ForgeName | None = None
    backend: str | None = None


def new_ci(session: Session, directory: Path, wanted: WorkflowOptions, *, force: bool) -> None:
    """Writes them and says what is left to do. Raises EngineError before anything is written."""
    repository = Repository.around(directory)
    forge = wanted.forge or _forge_of(repository.root)
    project = find_project(repository.project)
    backend = wanted.backend or backend_url(session.environ, project)
    provider = StackSettings.load(project, wanted.stack).secrets_provider
    clouds = Clouds.of((backend, provider))
    files = workflow_files(
        forge, repository, stack=wanted.stack, branch=wanted.branch, clouds=clouds
    )
    write_files(repository.root, files, force=force)
    for name in files:
        session.screen.print(f"Written in {repository.root}: {name}")
    for file in require_here(repository.project, clouds.extras):
        session.screen.print(f"Written in {repository.root}: {file.relative_to(repository.root)}")
    session.screen.print(f"The first lines of {next(iter(files))} say {_NEXT[forge]}.")
    if backend.startswith("file:"):
        session.screen.warn(
            f"warning: the state is in {backend}, which no job reaches: keep it in a bucket, and "
            "run this again with --force --backend URL (s3://, gs:// or azblob://)"
        )


def _forge_of(root: Path) -> ForgeName:
    """By the address of the repository's remote. Raises UsageError when it does not tell."""
    try:
        config = (root / ".git" / "config").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        config = ""
    found: list[ForgeName] = [name for name in ("github", "gitlab") if name in config]
    if len(found) != 1:
        raise click.UsageError("name the forge: --forge github or --forge gitlab")
    return found[0]
