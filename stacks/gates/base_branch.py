"""Read the gates of a project, or of a stacks.yaml, at another git revision, and compare them.

Runs and reviews with `--gates-from REF` call this module: a change that removes a gate is judged by
the gates of its base branch. The files come from git's objects, never from the work tree, which the
author of the change controls. A difference that may let more plans pass counts as weaker.
"""

import io
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from modulefinder import ModuleFinder
from pathlib import Path
from typing import Any, Final, Self

import yaml

from gpuform.providers.context import get_run_context
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import GateLevel
from gpuform.stacks import pricing
from gpuform.stacks.engine.ci_job import GIT, prefer_branch
from gpuform.stacks.engine.project import Project, find_project
from gpuform.stacks.gates.file import (
    FILE,
    STACKS_FILE,
    Gate,
    read_project_gates,
    read_stacks_gates,
)
from gpuform.stacks.gates.rules import COST_RULES


def find_weakened_gates(base: Sequence[Gate], changed: Sequence[Gate]) -> Iterator[str]:
    """Yield a text for each way in which `changed` is weaker: `gate budget: is removed`."""
    changed_gates = {gate.name: gate for gate in changed}
    for gate in base:
        other = changed_gates.get(gate.name)
        problems = ["is removed"] if other is None else _find_weakenings(gate, other)
        for problem in problems:
            yield f"gate {gate.name}: {problem}"


def _find_weakenings(gate: Gate, other: Gate) -> Iterator[str]:
    """Yield how `other` is weaker than the equally named `gate`."""
    if gate.rule != other.rule:
        yield f"checks {other.rule} instead of {gate.rule}"
    elif gate.value != other.value and not _is_stricter(gate.rule, gate.value, other.value):
        yield f"{gate.rule} is {_format_value(other.value)} instead of {_format_value(gate.value)}"
    if gate.level is GateLevel.MANDATORY and other.level is not GateLevel.MANDATORY:
        yield f"is {other.level} instead of {gate.level}"
    if other.resources and not (gate.resources and set(gate.resources) <= set(other.resources)):
        yield f"checks only the resources {', '.join(other.resources)}"
    if other.waiver is not None and (gate.waiver is None or other.waiver.until > gate.waiver.until):
        yield f"is waived until {other.waiver.until}, by {other.waiver.by}: {other.waiver.reason}"


def _is_lower(value: Any, other: Any) -> bool:
    """Return True if the number `other` is lower than `value`."""
    return bool(other < value)


def _has_fewer(value: Any, other: Any) -> bool:
    """Return True if all items of `other` are in `value`: a list of what is allowed."""
    return set(other) <= set(value)


def _has_more(value: Any, other: Any) -> bool:
    """Return True if all items of `value` are in `other`: a list of what is required."""
    return set(value) <= set(other)


def _costs_less(value: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if `other` is a lower amount of equal currency."""
    return bool(value["currency"] == other["currency"] and other["amount"] <= value["amount"])


def _opens_fewer(value: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if no further ports may be open in `other`."""
    return set(other.get("allowed") or ()) <= set(value.get("allowed") or ())


def _limits_more(value: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return True if each limit of `value` is as low in `other`, or lower."""
    limits = {name: limit for name, limit in value.items() if limit is not None}
    return all(
        other.get(name) is not None and other[name] <= limit for name, limit in limits.items()
    )


def _parse_percentage(percentage: str) -> float:
    return float(percentage.removesuffix("%"))


_STRICTER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    **dict.fromkeys(("max_destroyed_gpus", "max_repaired_nodes"), _is_lower),
    **dict.fromkeys(("allowed_regions", "allowed_gpu_types"), _has_fewer),
    **dict.fromkeys(("not_replaced", "required_tags", "protected"), _has_more),
    "max_hourly_cost": _costs_less,
    "max_cost_increase": lambda value, other: _parse_percentage(other) <= _parse_percentage(value),
    "no_open_ports": _opens_fewer,
    "rehearsal": _limits_more,
}
"""The rules whose values can be compared; a changed value of another rule counts as weaker."""


def _is_stricter(rule: str, value: Any, other: Any) -> bool:
    """Return True if the rule with `other` stops every plan stopped with `value`."""
    compare = _STRICTER.get(rule)
    return compare is not None and compare(value, other)


def _format_value(value: Any) -> str:
    """Format a rule's value as in a line of YAML; undeclared fields are left out."""
    if isinstance(value, Mapping):
        fields = (
            f"{name}: {_format_value(item)}" for name, item in value.items() if item is not None
        )
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_value, value))}]"
    return str(value)


_GIT_TIMEOUT_S = 60.0
_CODE_RULES: Final = frozenset({"python", "rego"})


@dataclass(frozen=True, slots=True)
class ProjectGates:
    """The gates that judge a plan of a project, and the files that they use.

    Attributes:
        gates: the gates.
        directory: the folder with the price book; over all stacks of a git revision also with the
            revision's files of projects and settings.
        program: the folder or file beside which Python and Rego rules stand.
        weakened: how the folder's gates are weaker than `gates`, as texts.
    """

    gates: Sequence[Gate]
    directory: Path
    program: Path
    weakened: tuple[str, ...] = ()


@contextmanager
def open_project_gates(project: Project, revision: str | None = None) -> Iterator[ProjectGates]:
    """Yield the gates of the project's folder, or of a git revision.

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
        revision_files = _RevisionFiles.find(project.directory, revision)
        prefix = revision_files.find_project_folder(project)
        if prefix is not None:
            revision_files.export_folder(prefix, base, FILE)
        gates = read_project_gates(base)
        program = find_project(base).program if (base / "Pulumi.yaml").is_file() else base
        weakened = (
            *find_weakened_gates(gates, _read_own_gates(project.directory)),
            *_find_changed_rules(gates, program, project.program),
            *_find_changed_prices(gates, base, project.directory),
        )
        yield ProjectGates(gates, base, program, weakened)


@contextmanager
def open_stacks_gates(
    start: Path, file: Path | None, revision: str | None = None
) -> Iterator[ProjectGates]:
    """Yield the gates over all stacks, of `file` or of a git revision; none without a stacks.yaml.

    The file of the revision is the nearest one upwards from `start`, whatever `file` is now. The
    files of the revision exist while the context is open.

    Raises:
        EngineError: a file of gates is wrong, or git cannot show the revision.
    """
    folder = start if file is None else file.parent
    own_gates = () if file is None else read_stacks_gates(file)
    if revision is None:
        yield ProjectGates(own_gates, folder, folder)
        return
    with tempfile.TemporaryDirectory(prefix="gpuform-gates-") as target:
        base = Path(target).resolve()
        revision_files = _RevisionFiles.find(start, revision)
        prefix = revision_files.find_stacks_folder()
        gates: Sequence[Gate] = ()
        if prefix is not None:
            revision_files.export_folder(prefix, base, STACKS_FILE, STACKS_FILE)
            gates = read_stacks_gates(base / STACKS_FILE)
        # All projects are below this folder: only rules in code need all of it.
        if prefix is not None and any(gate.rule in _CODE_RULES for gate in gates):
            revision_files.export_folder(prefix, base, STACKS_FILE)
        elif prefix is not None or file is None:
            revision_files.export_projects(prefix or revision_files.prefix, base)
        weakened = (
            *find_weakened_gates(gates, own_gates),
            *_find_changed_rules(gates, base, folder),
            *_find_removed_stacks(base / STACKS_FILE, file if gates else None),
        )
        yield ProjectGates(gates, base, base, weakened)


def _find_removed_stacks(base_file: Path, own_file: Path | None) -> Iterator[str]:
    """Yield a message for each entry of stacks missing in the changed file.

    The gates over all stacks would not count its GPUs and its cost.
    """
    if own_file is None:
        return
    own_entries = _read_stack_entries(own_file)
    for folder, stack in _read_stack_entries(base_file):
        if (folder, stack) not in own_entries:
            name = folder if stack is None else f"{folder}, stack {stack}"
            yield f"the gates no longer count the entry of folder {name}: it is removed"


def _read_stack_entries(file: Path) -> list[tuple[str, str | None]]:
    """Return the folder and the stack of each entry of a valid stacks.yaml."""
    entries = yaml.safe_load(file.read_text(encoding="utf-8"))["stacks"]
    return [(entry["folder"], entry.get("stack")) for entry in entries]


def _read_own_gates(directory: Path) -> Sequence[Gate]:
    """Return the gates of the folder; an invalid file counts as one without gates."""
    try:
        return read_project_gates(directory)
    # An invalid file holds no gate that would stop a plan after the merge.
    except EngineError:
        return ()


@dataclass(frozen=True, slots=True)
class _RevisionFiles:
    """The files of a git revision.

    `prefix` is the folder of the question, relative to the root of the repository: `.` or `a/b`.
    """

    root: Path
    revision: str
    commit: str
    prefix: str

    @classmethod
    def find(cls, directory: Path, revision: str) -> Self:
        """Return the files of a revision in the repository around `directory`.

        Raises:
            EngineError: the folder is in no repository, or the revision is not in it.
        """
        directory = directory.resolve()
        top = _run_git(directory, revision, "rev-parse", "--show-toplevel").strip()
        root = Path(os.fsdecode(top))
        # git before 2.38 does not know the setting in `GIT`. No change can hold a `.git`.
        if not (root / ".git").exists() and "GIT_DIR" not in get_run_context().environ:
            raise EngineError(
                f"the gates of {revision} cannot be read: {root} holds the files of a bare "
                "repository",
                hint="remove HEAD, objects and refs from this folder",
            )
        full_name = prefer_branch(
            revision,
            lambda pattern: os.fsdecode(
                _run_git(root, revision, "for-each-ref", "--format=%(refname)", pattern)
            ),
        )
        # Anything but a commit's id could be read as a flag or as another object below.
        commit = _run_git(
            root, revision, "rev-parse", "--verify", "--end-of-options", f"{full_name}^{{commit}}"
        ).decode()
        prefix = directory.relative_to(root.resolve()).as_posix()
        return cls(root, revision, commit.strip(), prefix)

    def find_project_folder(self, project: Project) -> str | None:
        """Return the folder of the project of this name; None if the project is new since.

        A project that has moved is judged by the gates of its former folder. A project with a new
        name is judged by those of the folder.
        """
        if self._read_project_name(self.prefix) == project.name:
            return self.prefix
        names = self._list_names("-r")
        folders = [name.rpartition("/")[0] or "." for name in names if _is_project_file(name)]
        for folder in folders:
            if self._read_project_name(folder) == project.name:
                return folder
        is_there = self.prefix == "." or any(name.startswith(f"{self.prefix}/") for name in names)
        return self.prefix if is_there else None

    def find_stacks_folder(self) -> str | None:
        """Return the nearest folder upwards with a stacks.yaml, or None."""
        folders = [self.prefix, *(folder.as_posix() for folder in Path(self.prefix).parents)]
        return next(
            (folder for folder in folders if self._list_names("--", _join(folder, STACKS_FILE))),
            None,
        )

    def export_folder(self, prefix: str, target: Path, required_file: str, *paths: str) -> None:
        """Write the files of a folder to `target`: all, or those at `paths`.

        Raises:
            EngineError: `required_file` is in the folder, and cannot be read.
        """
        tree = self.commit if prefix == "." else f"{self.commit}:{prefix}"
        packed = _run_git(self.root, self.revision, "archive", "--format=tar", tree, "--", *paths)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            # Links could lead back into the work tree of the change.
            members = [member for member in archive if member.isreg() or member.isdir()]
            archive.extractall(target, members, filter="data")
        is_known = bool(self._list_names("--", _join(prefix, required_file)))
        # `export-ignore` and links keep a file out of the archive: that is not one without gates.
        if is_known and not (target / required_file).is_file():
            raise EngineError(
                f"{required_file} of {self.revision} cannot be read from git",
                hint=f"remove `export-ignore` for {required_file} from .gitattributes, and make it "
                "no link",
            )

    def export_projects(self, prefix: str, target: Path) -> None:
        """Write stacks.yaml and the files of projects and settings below a folder to `target`.

        A file that the revision does not have is left out.
        """
        below = "" if prefix == "." else f"{prefix}/"
        names = [name for name in self._list_names("-r") if name.startswith(below)]
        # git fails for a pattern that matches nothing.
        paths = [STACKS_FILE] if _join(prefix, STACKS_FILE) in names else []
        if any(map(_is_project_file, names)):
            paths.append(":(glob)**/Pulumi*.y*ml")
        if paths:
            self.export_folder(prefix, target, STACKS_FILE, *paths)

    def _list_names(self, *arguments: str) -> list[str]:
        """Return the paths of the git revision's files, filtered by `git ls-tree` arguments."""
        listed = _run_git(
            self.root, self.revision, "ls-tree", "-z", "--name-only", self.commit, *arguments
        )
        return [os.fsdecode(name) for name in listed.split(b"\0") if name]

    def _read_project_name(self, folder: str) -> str | None:
        """Return the name in the folder's Pulumi.yaml; None without a file or for other content."""
        for name in self._list_names("--", *(_join(folder, file) for file in _PROJECT_FILES)):
            yaml_source = _run_git(
                self.root, self.revision, "cat-file", "blob", f"{self.commit}:{name}"
            )
            try:
                values = yaml.safe_load(yaml_source)
            except yaml.YAMLError:
                return None
            return values.get("name") if isinstance(values, dict) else None
        return None


_PROJECT_FILES: Final = ("Pulumi.yaml", "Pulumi.yml")


def _is_project_file(name: str) -> bool:
    """Return True for the path of a Pulumi.yaml."""
    return name.rpartition("/")[2] in _PROJECT_FILES


def _join(folder: str, name: str) -> str:
    """Return the path of a file in a folder of git, where the root is `.`."""
    return name if folder == "." else f"{folder}/{name}"


def _run_git(folder: Path, revision: str, *arguments: str) -> bytes:
    """Return the output of a git command. Raises EngineError."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments; the revision stands after its flags
            # A ref below refs/replace/ would put another commit in place of that of the revision.
            [*GIT, "--no-replace-objects", "-C", str(folder), *arguments],
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


def _find_changed_rules(
    gates: Sequence[Gate], base_program: Path, own_program: Path
) -> Iterator[str]:
    """Yield a text for each rule in Python or Rego whose code differs."""
    own_folder, base_folder = (
        program if program.is_dir() else program.parent for program in (own_program, base_program)
    )
    for gate in gates:
        if gate.rule not in _CODE_RULES:
            continue
        paths = [str(gate.value)]
        if gate.rule == "python":
            paths = _list_imported_files(base_folder, paths[0].partition(":")[0])
        changed = [
            path
            for path in paths
            if _read_files(base_folder / path) != _read_files(own_folder / path)
        ]
        if changed:
            yield f"gate {gate.name}: its rule in {', '.join(changed)} is changed"


def _list_imported_files(folder: Path, module_name: str) -> list[str]:
    """Return the paths of a module's file or package, and of the imported files.

    The paths are relative to `folder`, and files elsewhere are left out. Imports by a computed name
    are not found.
    """
    top = module_name.partition(".")[0]
    paths = [top if (folder / top).is_dir() else f"{top}.py"]
    sources = [*(folder / top).rglob("*.py"), folder / f"{top}.py"]
    finder = ModuleFinder(path=[str(folder)])
    for source in filter(Path.is_file, sources):
        # A rule that is no Python stops the plan by itself.
        with suppress(SyntaxError, ValueError):
            finder.load_file(str(source))
    origins = [getattr(module, "__file__", None) for module in finder.modules.values()]
    imported = [Path(origin) for origin in origins if origin]
    paths += [file.relative_to(folder).as_posix() for file in imported if file not in sources]
    return sorted(set(paths), key=lambda path: (path != paths[0], path))


def _find_changed_prices(gates: Sequence[Gate], base: Path, own: Path) -> Iterator[str]:
    """Yield a text if the price book of cost gates differs."""
    names = [gate.name for gate in gates if gate.rule in COST_RULES]
    if names and _read_files(base / pricing.FILE) != _read_files(own / pricing.FILE):
        yield (f"gate {', '.join(names)}: {pricing.FILE} is changed, by which costs are computed")


def _read_files(path: Path) -> dict[str, bytes]:
    """Return the contents of a file, or of all source files below a folder; empty if missing."""
    if path.is_dir():
        files = [file for file in path.rglob("*") if file.suffix in {".py", ".rego"}]
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}
    # git may write other line ends into a work tree than it stores.
    return {"": path.read_bytes().replace(b"\r\n", b"\n")} if path.is_file() else {}
