"""Order the stacks of a workspace by their references, and filter them by name, folder or git diff.

Filters have Terragrunt's forms: NAME, ./FOLDER, [REVISION] or [BASE...HEAD], each with `...` before
it to add the dependants. Called by every command with `--all`.
"""

import re
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Self

from gpuform.schemas.checking import suggest_name
from gpuform.schemas.errors import EngineError
from gpuform.schemas.values import find_reachable, sort_by_dependencies
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition, format_text
from gpuform.stacks.engine.ci_job import GIT, prefer_branch
from gpuform.stacks.engine.store import Backend, strip_credentials
from gpuform.stacks.gates.file import check_gates, check_stacks_gates
from gpuform.stacks.multi_stack.reading import (
    FILE,
    MultiStackError,
    MultiStackWorkspace,
    WorkspaceStack,
    find_workspace,
    list_stacks_with_settings,
    select_by_name,
)
from gpuform.stacks.multi_stack.references import StackContents, StackUse, read_stack_contents
from gpuform.stacks.notify import check_rules
from gpuform.stacks.topology.files import format_path
from gpuform.stacks.topology.planning import PlannedTopology


@dataclass(frozen=True, slots=True)
class StackOrder:
    """Hold the dependencies of each stack by name, with the position where each is written.

    `contents` is what the files of each stack say, and `problems` what is wrong with them.
    """

    workspace: MultiStackWorkspace
    dependencies: Mapping[str, Mapping[str, SourcePosition]]
    contents: Mapping[str, StackContents]
    problems: Mapping[str, Diagnostics]

    @classmethod
    def from_workspace(cls, workspace: MultiStackWorkspace, problems: Diagnostics) -> Self:
        """Read the dependencies from `after` in stacks.yaml and from stack references in files.

        Cycles and other problems are added to `problems`.
        """
        problems_by_stack = {name: Diagnostics() for name in workspace.stacks}
        contents = {
            name: read_stack_contents(stack, problems_by_stack[name])
            for name, stack in workspace.stacks.items()
        }
        dependencies: dict[str, dict[str, SourcePosition]] = {}
        for name, member in workspace.stacks.items():
            dependencies[name] = {other: member.position for other in member.after if other != name}
            for use in contents[name].uses:
                other = workspace.find(member.backend, use.stack)
                if other is None:
                    _check_foreign_stack(workspace, member, use, problems_by_stack[name])
                elif other.name != name:
                    dependencies[name].setdefault(other.name, use.position)
        for cycle in find_cycles(dependencies):
            path = " -> ".join(cycle)
            position = dependencies[cycle[0]][cycle[1]]
            hint = "remove one of these references, or move what it reads into its own stack"
            for name in cycle:
                problems_by_stack[name].add(
                    position, "cycle", f"these stacks depend on each other in a cycle: {path}", hint
                )
        for stack_problems in problems_by_stack.values():
            problems.extend(stack_problems)
        return cls(workspace, dependencies, contents, problems_by_stack)

    def list_exports(self) -> dict[str, frozenset[str]]:
        """Return the output names of each stack by full name.

        A stack is absent if its files do not show all of its outputs.
        """
        stacks = self.workspace.stacks
        exports_by_name = {
            stacks[name].full_name: content.exports for name, content in self.contents.items()
        }
        return {name: exports for name, exports in exports_by_name.items() if exports is not None}

    def list_dependants(self, names: Iterable[str]) -> set[str]:
        """Return the named stacks with all direct and indirect dependants."""
        return find_dependants(names, self.dependencies)


def order_workspace(
    folder: Path,
    environ: Mapping[str, str],
    filters: Sequence[str],
    stack: str | None,
    *,
    runs_programs: bool,
    has_plan: bool = False,
) -> tuple[StackOrder, set[str]]:
    """Return the order of all stacks of the workspace around `folder`, and the chosen names.

    `filters` have the forms of --filter; `stack` chooses the stacks of this name in all projects.
    `has_plan` is True for some stacks of a saved plan, which has their order: where no filter needs
    the files of the stacks, the files are not read, and the result has no dependencies.
    `runs_programs` is True for operations that run the stacks' programs. For others, problems in a
    stack's program are ignored: they must not keep the stack from being destroyed. No name is
    chosen if a git diff changes no stack, or if `stack` and the filters have none in common.

    Raises:
        MultiStackError: the stacks cannot be ordered, or a filter or `stack` matches no stack.
    """
    problems, program_problems = Diagnostics(), Diagnostics()
    workspace = find_workspace(folder, environ, problems)
    if has_plan and not any(it.startswith(("[", _DEPENDANTS)) for it in filters):
        order = StackOrder(workspace, {name: {} for name in workspace.stacks}, {}, {})
    else:
        order = StackOrder.from_workspace(workspace, program_problems)
    if runs_programs:
        problems.extend(program_problems)
    if problems:
        raise MultiStackError(f"cannot order the stacks:\n{format_text(list(problems))}")
    names = select_stacks(order, filters)
    if stack is not None:
        names &= set(select_by_name(order.workspace, stack))
    return order, names


def find_dependants(names: Iterable[str], dependencies: Mapping[str, Collection[str]]) -> set[str]:
    """Return the names with all their direct and indirect dependants."""
    users: dict[str, list[str]] = {}
    for name, stack_dependencies in dependencies.items():
        for other in stack_dependencies:
            users.setdefault(other, []).append(name)
    return find_reachable(names, lambda name: users.get(name, ()))


def find_cycles(dependencies: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Return the cycles of dependencies, each from a stack back to itself.

    A cycle that shares a stack with one found before is left out.
    """
    cycles: list[list[str]] = []
    reported: set[str] = set()

    def report_cycle(cycle: list[str]) -> None:
        if reported.isdisjoint(cycle):
            cycles.append(cycle)
            reported.update(cycle)

    sort_stacks(dependencies, report_cycle)
    return cycles


def sort_stacks(
    dependencies: Mapping[str, Collection[str]],
    report_cycle: Callable[[list[str]], None] | None = None,
) -> list[str]:
    """Sort the names of stacks, dependencies first. A cycle is cut at one of its dependencies.

    Dependencies without a key are left out. Equal dependencies give an equal order in every run.
    `report_cycle` gets the names of each cycle, the first one again at the end.
    """
    # A set has another order in each process: sorted, equal plans are equal files.
    return sort_by_dependencies(dependencies, lambda name: sorted(dependencies[name]), report_cycle)


def _check_foreign_stack(
    workspace: MultiStackWorkspace, member: WorkspaceStack, use: StackUse, problems: Diagnostics
) -> None:
    """Report a reference to a stack of another backend, or to a stack that does not exist.

    Whether the stack exists is checked only if the backend is a folder, and if all stacks of the
    workspace could be read.
    """
    short = use.stack.removeprefix("organization/")
    namesake = workspace.stacks.get(short)
    if namesake is not None:
        message = (
            f"{member.name} reads {short}, which is in another backend: "
            f"{strip_credentials(namesake.backend)}, not {strip_credentials(member.backend)}"
        )
        hint = "a stack can read only stacks of its own backend: use one backend for both"
        problems.add(use.position, "unknown-stack", message, hint)
        return
    # What could not be read may be what is meant; a bucket cannot be asked without credentials.
    if not workspace.is_complete or not member.backend.startswith("file:"):
        return
    project, _, stack = short.partition("/")
    try:
        is_there = Backend.open(member.backend).exists(project, stack)
    except EngineError as error:
        problems.add(use.position, "unknown-stack", error.message, error.hint or "")
        return
    if not is_there:
        message = f"{member.name} reads {short}, which does not exist"
        names = ", ".join(candidate for candidate in workspace.stacks if candidate != member.name)
        hint = f"add it to {FILE}, or use one of {names}" if names else f"add it to {FILE}"
        problems.add(use.position, "unknown-stack", message, hint)


def check_workspace(
    order: StackOrder, names: Collection[str], problems: Diagnostics
) -> Mapping[str, PlannedTopology]:
    """Check the named stacks, their projects' gates and those of stacks.yaml.

    Problems are added to `problems`.

    Returns:
        What the topologies of the stacks declare, by name.
    """
    workspace, exports = order.workspace, order.list_exports()
    planned: dict[str, PlannedTopology] = {}
    # Without a stacks.yaml there are no gates over all stacks.
    if workspace.file is not None:
        check_stacks_gates(workspace.file, problems)
    for name in names:
        member = workspace.stacks[name]
        problems.extend(order.problems[name])
        _check_settings(member, problems)
        if not order.contents[name].has_program:
            _add_missing_program(member, problems)
        plan = order.contents[name].check_contents(exports, problems)
        if plan is not None:
            planned[name] = plan
        check_gates(member.project.directory, problems)
        check_rules(member.project.directory, problems)
    return planned


def _check_settings(member: WorkspaceStack, problems: Diagnostics) -> None:
    """Report a missing settings file of a stack if the project has others.

    The usual cause is a misspelled name in stacks.yaml.
    """
    path = member.project.get_settings_path(member.stack)
    others = list_stacks_with_settings(member.project)
    if others and not path.exists():
        message = f"stack {member.name} has no settings file {path.name}"
        listed = f"the settings files are {', '.join(others)}"
        suggestion = suggest_name(member.stack, others, listed)
        hint = f"{suggestion}; to create it, run `gpuform stack init --all`"
        problems.add(member.position, "unknown-stack", message, hint)


def _add_missing_program(member: WorkspaceStack, problems: Diagnostics) -> None:
    """Report that a stack's project has no program."""
    program = member.project.program
    reason = "has neither topology.yaml nor __main__.py" if program.is_dir() else "does not exist"
    hint = "create it, or set `main` in Pulumi.yaml to the program's folder or file"
    position = SourcePosition(format_path(member.project.path))
    problems.add(position, "program", f"no program: {format_path(program)} {reason}", hint)


_DEPENDANTS: Final = "..."
_DIFF: Final = re.compile(r"\[(?P<base>[^\[\]]*?)(?:\.\.\.(?P<head>[^\[\]]*))?\]")
_REVISION: Final = re.compile(r"[^-\s]\S*")
_FORMS: Final = (
    "write a name such as network/prod or clusters-*/prod, a folder such as ./clusters, or a git "
    "diff such as [main]; `...` before it adds the dependants"
)


def select_stacks(order: StackOrder, filters: Sequence[str]) -> set[str]:
    """Return the names of the stacks matched by a filter; all names without filters.

    A filter that begins with `...` also selects the dependants.

    Raises:
        MultiStackError: a filter is invalid, or its folder or name matches no stack. A git diff may
            match none.
    """
    if not filters:
        return set(order.workspace.stacks)
    selected: set[str] = set()
    for filter_text in filters:
        pattern = filter_text.removeprefix(_DEPENDANTS)
        chosen = _select_by_filter(order, filter_text, pattern)
        selected |= order.list_dependants(chosen) if pattern != filter_text else set(chosen)
    return selected


def _select_by_filter(order: StackOrder, filter_text: str, pattern: str) -> list[str]:
    """Return the names of the stacks that a filter matches, in order.

    Args:
        order: the stacks.
        filter_text: the filter as the user wrote it, for error messages.
        pattern: the filter without `...`: `[BASE...HEAD]` for the stacks that a git diff changes, a
            path that begins with `.` or `/` for the stacks in a folder, else a name.

    Raises:
        MultiStackError: the filter is invalid, or a folder or name matches no stack.
    """
    workspace, members = order.workspace, order.workspace.stacks.values()
    if pattern.startswith("["):
        match = _DIFF.fullmatch(pattern)
        if match is None:
            raise MultiStackError(f"--filter {filter_text} is not a valid filter", hint=_FORMS)
        # A diff may touch nothing: that is an answer.
        return _list_changed_stacks(order, match["base"], match["head"])
    if pattern.startswith((".", "/")):
        folder = Path(pattern)
        matching_names = [stack.name for stack in members if _is_in_folder(stack, folder)]
    else:
        matching_names = [stack.name for stack in members if _has_matching_name(stack, pattern)]
    if not matching_names:
        names = ", ".join(workspace.stacks)
        raise MultiStackError(
            f"--filter {filter_text} matches none of the stacks",
            hint=f"the stacks are {names}; {_FORMS}",
        )
    return matching_names


def _has_matching_name(member: WorkspaceStack, pattern: str) -> bool:
    """Return True if the pattern matches `PROJECT/STACK`, the project or the stack."""
    texts = (member.name, member.project.name, member.stack)
    return any(fnmatchcase(candidate, pattern) for candidate in texts)


def _is_in_folder(member: WorkspaceStack, pattern: Path) -> bool:
    """Return True if the stack's folder or a folder above matches the pattern.

    A relative pattern begins at the current folder.
    """
    parts = pattern.parts
    plain = next((index for index, part in enumerate(parts) if "*" in part), len(parts))
    # Only the part before the first `*` can be resolved.
    start, own = Path(*parts[:plain]).resolve(), member.project.directory.resolve()
    if not own.is_relative_to(start):
        return False
    patterns, rest = parts[plain:], own.relative_to(start).parts
    return len(rest) >= len(patterns) and all(
        fnmatchcase(part, pattern_part) for part, pattern_part in zip(rest, patterns, strict=False)
    )


def _list_changed_stacks(order: StackOrder, base: str, head: str | None) -> list[str]:
    """List the stacks with a changed file in the stack's folder or among the topology's includes.

    A change outside of all folders, such as in a package that several programs import, counts for
    the stacks whose files mention the changed file. A change of stacks.yaml counts for all stacks.
    Without `head`, `base` is compared with the working tree, including files that git does not know
    yet. Raises MultiStackError if `base` or `head` is no revision, or if git fails.
    """
    workspace = order.workspace
    for revision in (base, head or "HEAD"):
        # git would read a revision that begins with a hyphen as an option.
        if not _REVISION.fullmatch(revision):
            raise MultiStackError(f"{revision!r} is not a revision of git", hint=_FORMS)
    top = Path(_run_git(workspace.root, "rev-parse", "--show-toplevel").strip())

    def list_refs(pattern: str) -> str:
        return _run_git(workspace.root, "for-each-ref", "--format=%(refname)", pattern)

    base = prefer_branch(base, list_refs)
    head = prefer_branch(head, list_refs) if head else None
    if head:
        revision = f"{base}...{head}"
    else:  # later commits of `base` are no changes of the branch
        revision = _run_git(workspace.root, "merge-base", base, "HEAD").strip()
    # `-z` and no renames: each name stands alone, and a moved file counts in both folders.
    names = _run_git(workspace.root, "diff", "--name-only", "-z", "--no-renames", revision, "--")
    if head is None:  # what is not committed yet counts, too
        names += _run_git(
            workspace.root, "ls-files", "--others", "--exclude-standard", "-z", "--full-name"
        )
    changed = [top / name for name in names.split("\0") if name]
    if workspace.file is not None and workspace.file.resolve() in changed:
        return list(workspace.stacks)
    return [name for name in workspace.stacks if _is_changed(name, order, changed)]


def _is_changed(name: str, order: StackOrder, changed: Iterable[Path]) -> bool:
    """Return True if one of the changed files belongs to the stack.

    These files belong to the stack: the files of its topology, its settings, all files in its
    folder except for other projects and the settings of other stacks, and files outside of all
    projects that its files mention.
    """
    member, files = order.workspace.stacks[name], order.contents[name].files
    own = member.project.directory.resolve()
    others = [
        other_stack.project.directory.resolve()
        for other_stack in order.workspace.stacks.values()
        if other_stack.project.path != member.project.path
    ]
    # A project inside another one's folder has its own changes.
    inner = [other for other in others if other.is_relative_to(own) and other != own]
    settings = member.project.get_settings_path(member.stack)
    for path in changed:
        if path in files or path == settings.resolve():
            return True
        if path.is_relative_to(own):
            if any(path.is_relative_to(other) for other in inner):
                continue
            # Pulumi.prod.yaml does not change the stack dev.
            if _is_settings_of_another(path, settings):
                continue
            return True
        if not any(path.is_relative_to(other) for other in others) and is_mentioned(member, path):
            return True
    return False


def _is_settings_of_another(path: Path, settings: Path) -> bool:
    """Return True for the settings file of another stack of the project."""
    is_settings = path.name.startswith("Pulumi.") and path.suffix == settings.suffix
    return is_settings and path.name not in (settings.name, f"Pulumi{settings.suffix}")


def is_mentioned(member: WorkspaceStack, path: Path) -> bool:
    """Return True if a file directly in the stack's folder contains the name of `path`.

    Only YAML, Python, TOML and .txt files are searched. Modules are named without `.py`, as in
    imports.
    """
    # An import names a module without its ending.
    mention = path.stem if path.suffix == ".py" and path.stem != "__init__" else path.name
    mention = path.parent.name if path.name == "__init__.py" else mention
    for file in member.project.directory.glob("*"):
        if file.suffix in (".yaml", ".yml", ".py", ".toml", ".txt") and file.is_file():
            try:
                if mention in file.read_text(encoding="utf-8", errors="replace"):
                    return True
            except OSError:
                continue
    return False


def _run_git(folder: Path, *arguments: str) -> str:
    """Return the output of a git command in `folder`. Raises MultiStackError."""
    try:
        result = subprocess.run(  # noqa: S603 - revisions are checked, and no shell is between
            [*GIT, "-C", str(folder), *arguments],
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise MultiStackError(
            "cannot run git, which finds the changed files", hint="install git, or filter by names"
        ) from error
    if result.returncode != 0:
        errors = result.stderr.decode(errors="replace").strip().splitlines()
        raise MultiStackError(
            f"git cannot list the changed files: {errors[-1] if errors else 'it failed'}",
            hint="in a CI job, fetch the base first: `git fetch origin main`",
        )
    # Names of files need not be UTF-8.
    return result.stdout.decode(errors="surrogateescape")
