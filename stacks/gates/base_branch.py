"""Read the gates of a project at another git revision, and compare them with those of the folder.

Runs and reviews with `--gates-from REF` call this module: a change that removes a gate is judged by
the gates of its base branch. The files come from git's objects, never from the work tree, which
the author of the change controls.
"""

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuform.providers.context import get_run_context
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import Project, find_project
from gpuform.stacks.gates.comparing import find_weakened_gates
from gpuform.stacks.gates.file import FILE, Gate, read_project_gates
from gpuform.stacks.gates.rules import COST_RULES
from gpuform.stacks.pricing import price_book

_GIT_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class ProjectGates:
    """The gates that judge a plan of a project, and the files that they use.

    Attributes:
        gates: the gates.
        directory: the folder with the price book.
        program: the folder or file beside which Python and Rego rules stand.
        weakened: how the folder's gates are weaker than `gates`, as texts.
    """

    gates: Sequence[Gate]
    directory: Path
    program: Path
    weakened: tuple[str, ...] = ()


@contextmanager
def open_project_gates(project: Project, revision: str | None = None) -> Iterator[ProjectGates]:
    """Yield the gates of the project's folder, or those of a git revision.

    The files of the revision exist while the context is open.

    Raises:
        EngineError: a file of gates is wrong, or git cannot show the revision.
    """
    if revision is None:
        yield ProjectGates(
            read_project_gates(project.directory), project.directory, project.program
        )
        return
    with tempfile.TemporaryDirectory(prefix="gpuform-gates-") as folder:
        base = Path(folder).resolve()
        _export_project(project.directory, revision, base)
        gates = read_project_gates(base)
        program = find_project(base).program if (base / "Pulumi.yaml").is_file() else base
        weakened = (
            *find_weakened_gates(gates, _read_own_gates(project.directory)),
            *_find_changed_files(gates, base, program, project),
        )
        yield ProjectGates(gates, base, program, weakened)


def _read_own_gates(directory: Path) -> Sequence[Gate]:
    """Return the gates of the folder; an invalid file counts as one without gates."""
    try:
        return read_project_gates(directory)
    # An invalid file holds no gate that would stop a plan after the merge.
    except EngineError:
        return ()


def _export_project(directory: Path, revision: str, target: Path) -> None:
    """Write the project's files of a revision to `target`; none if the project is new since.

    Raises:
        EngineError: the folder is in no repository, or the revision is not in it.
    """
    directory = directory.resolve()
    root = Path(os.fsdecode(_run_git(directory, revision, "rev-parse", "--show-toplevel").strip()))
    # Anything but a commit's id could be read as a flag or as another object below.
    commit = _run_git(
        root, revision, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}"
    ).decode()
    prefix = directory.relative_to(root.resolve()).as_posix()
    tree = commit.strip() if prefix == "." else f"{commit.strip()}:{prefix}"
    folders = "" if prefix == "." else f"{prefix}/"
    names = _run_git(root, revision, "ls-tree", "-z", commit.strip(), "--", folders or FILE)
    if folders and not names:
        return
    packed = _run_git(root, revision, "archive", "--format=tar", tree)
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        # Links could lead back into the work tree of the change.
        members = [member for member in archive if member.isreg() or member.isdir()]
        archive.extractall(target, members, filter="data")
    known = {os.fsdecode(name.rpartition(b"\t")[2]) for name in names.split(b"\0")}
    # `export-ignore` and links keep a file out of the archive: that is not a project without gates.
    if f"{folders}{FILE}" in known and not (target / FILE).is_file():
        raise EngineError(
            f"{FILE} of {revision} cannot be read from git",
            hint=f"remove `export-ignore` for {FILE} from .gitattributes, and make it no link",
        )


def _run_git(folder: Path, revision: str, *arguments: str) -> bytes:
    """Return the output of a git command. Raises EngineError."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments; the revision stands after its flags
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - whichever git the user has
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_GIT_TIMEOUT_S,
            env={**get_run_context().environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineError(
            f"the gates of {revision} cannot be read: git does not run: {error}",
            hint="install git, or leave --gates-from out",
        ) from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise EngineError(
            f"the gates of {revision} cannot be read: {lines[-1] if lines else 'git failed'}",
            hint="in a CI job, fetch the base branch first: `git fetch origin BRANCH`",
        )
    return done.stdout


def _find_changed_files(
    gates: Sequence[Gate], base: Path, program: Path, project: Project
) -> Iterator[str]:
    """Yield a text for each rule's code, and for the price book of cost gates, that differs."""
    own_folder = project.program if project.program.is_dir() else project.program.parent
    base_folder = program if program.is_dir() else program.parent
    for gate in gates:
        if gate.rule not in {"python", "rego"}:
            continue
        path = str(gate.value)
        if gate.rule == "python":
            # A module may import others of its package.
            module = path.partition(":")[0].partition(".")[0]
            path = module if (base_folder / module).is_dir() else f"{module}.py"
        if _read_files(base_folder / path) != _read_files(own_folder / path):
            yield f"gate {gate.name}: its rule in {path} is changed"
    own_book = project.directory / price_book.FILE
    if any(gate.rule in COST_RULES for gate in gates) and (
        _read_files(base / price_book.FILE) != _read_files(own_book)
    ):
        names = ", ".join(gate.name for gate in gates if gate.rule in COST_RULES)
        yield f"gate {names}: {price_book.FILE} is changed, by which costs are computed"


def _read_files(path: Path) -> dict[str, bytes]:
    """Return the contents of a file, or of all source files below a folder; empty without it."""
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.suffix in {".py", ".rego"}]
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}
    # git may write other line ends into a work tree than it stores.
    return {"": path.read_bytes().replace(b"\r\n", b"\n")} if path.is_file() else {}
