"""`gpuform new ci`: the workflows of a repository, written where its forge looks for them."""

from pathlib import Path

import click

from gpuform.stacks.cli.session import Session
from gpuform.stacks.forges.asked import ForgeName
from gpuform.stacks.projects import write_files
from gpuform.stacks.workflow_files import Repository, workflow_files

_NEXT = {
    "github": "Its first lines say which variables, secrets and rules to set.",
    "gitlab": "Its first lines say which variables and which schedule to set.",
}


def new_ci(
    session: Session,
    directory: Path,
    *,
    forge: ForgeName | None,
    stack: str,
    branch: str,
    force: bool,
) -> None:
    """Writes them and says what is left to do. Raises EngineError before anything is written."""
    repository = Repository.around(directory)
    if forge is None:
        forge = _forge_of(repository.root)
    files = workflow_files(forge, repository, stack=stack, branch=branch)
    write_files(repository.root, files, force=force)
    for name in files:
        session.screen.print(f"Written in {repository.root}: {name}")
    session.screen.print(_NEXT[forge])
    if not (repository.project / "requirements.txt").is_file():
        session.screen.warn(
            "warning: the jobs install requirements.txt, which is not there: "
            "write `gpuform` into one"
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
