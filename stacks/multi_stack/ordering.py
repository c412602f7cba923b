"""Order the stacks of a workspace by what they read of each other, and filter them by name, folder
or git diff.

The forms are Terragrunt's: NAME, ./FOLDER, [REVISION] or [BASE...HEAD], each with `...` before it
for the dependants as well.
"""

import re
import subprocess
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Self

from gpuform.schemas.checking import find_nearest_name
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.store import Backend, strip_credentials
from gpuform.stacks.gates.file import check_gates, check_stacks_gates
from gpuform.stacks.multi_stack.members import FILE, Estate, EstateError, Member
from gpuform.stacks.multi_stack.reading import stacks_with_settings
from gpuform.stacks.multi_stack.references import StackUse, Told, told_by
from gpuform.stacks.topology.files import format_path
from gpuform.stacks.topology.planning import PlannedTopology


@dataclass(frozen=True, slots=True)
class Order:
    """What each member needs, by names: those that come before it, and where that is written.

    `told` is what the files of each member tell, and `found` what is wrong with them.
    """

    estate: Estate
    needs: Mapping[str, Mapping[str, SourcePosition]]
    told: Mapping[str, Told]
    found: Mapping[str, Diagnostics]

    @classmethod
    def of(cls, estate: Estate, problems: Diagnostics) -> Self:
        """The order that files tell. What is wrong goes to `problems`: circles, unknown stacks."""
        found = {name: Diagnostics() for name in estate.members}
        told = {name: told_by(each, found[name]) for name, each in estate.members.items()}
        needs: dict[str, dict[str, SourcePosition]] = {}
        for name, member in estate.members.items():
            needs[name] = {other: member.place for other in member.after if other != name}
            for use in told[name].uses:
                other = estate.find(member.backend, use.stack)
                if other is None:
                    _check_outside(estate, member, use, found[name])
                elif other.name != name:
                    needs[name].setdefault(other.name, use.place)
        for circle in circles(needs):
            way = " -> ".join(circle)
            place = needs[circle[0]][circle[1]]
            hint = "take one of these references out, or move what is read into a stack of its own"
            for name in circle:
                found[name].add(place, "cycle", f"these stacks need each other: {way}", hint)
        for each in found.values():
            problems.extend(each)
        return cls(estate, needs, told, found)

    def exports(self) -> dict[str, frozenset[str]]:
        """The names of what each member gives out, by full names, as far as files tell them all."""
        members = self.estate.members
        found = {members[name].full_name: told.exports for name, told in self.told.items()}
        return {name: exports for name, exports in found.items() if exports is not None}

    def dependants(self, names: Iterable[str]) -> set[str]:
        """These members, and all that need one of them, in whatever number of steps."""
        return reaching(set(names), {name: set(needs) for name, needs in self.needs.items()})


def reaching(found: set[str], needs: Mapping[str, Collection[str]]) -> set[str]:
    """All that these are, or that need one of them."""
    users: dict[str, list[str]] = {}
    for name, needed in needs.items():
        for other in needed:
            users.setdefault(other, []).append(name)
    rest = list(found)
    while rest:
        for user in users.get(rest.pop(), ()):
            if user not in found:
                found.add(user)
                rest.append(user)
    return found


def circles(needs: Mapping[str, Collection[str]]) -> list[list[str]]:
    """The circles among needs, each from its first member back to itself; no member in two."""
    done: set[str] = set()
    found: list[list[str]] = []
    told: set[str] = set()
    for first in needs:
        path: dict[str, None] = {}
        rest = [(first, False)]
        while rest:
            name, is_end = rest.pop()
            if is_end:
                del path[name]
                done.add(name)
            elif name in path:
                way = list(path)
                circle = way[way.index(name) :]
                if told.isdisjoint(circle):
                    found.append([*circle, name])
                    told.update(circle)
            elif name not in done:
                path[name] = None
                rest.append((name, True))
                rest += [(other, False) for other in needs.get(name, ()) if other in needs]
    return found


def sequence(needs: Mapping[str, Collection[str]]) -> list[str]:
    """The names, each after what it needs; in a circle somewhere."""
    begun: set[str] = set()
    done: dict[str, None] = {}
    for first in needs:
        rest = [(first, False)]
        while rest:
            name, is_end = rest.pop()
            if is_end:
                done[name] = None
            elif name not in begun:
                begun.add(name)
                rest.append((name, True))
                rest += [(other, False) for other in needs[name] if other in needs]
    return list(done)


def _check_outside(estate: Estate, member: Member, use: StackUse, problems: Diagnostics) -> None:
    """A stack that is not among the members has to be in the backend, where files can tell."""
    short = use.stack.removeprefix("organization/")
    known = estate.members.get(short)
    if known is not None:
        message = (
            f"{member.name} reads {short}, which is in another backend: "
            f"{strip_credentials(known.backend)}, and not {strip_credentials(member.backend)}"
        )
        hint = "a stack reads stacks of its own backend only: give both the same"
        problems.add(use.place, "unknown-stack", message, hint)
        return
    # What could not be read may be what is meant; a bucket cannot be asked without credentials.
    if not estate.is_whole or not member.backend.startswith("file:"):
        return
    project, _, stack = short.partition("/")
    try:
        is_there = Backend.open(member.backend).exists(project, stack)
    except EngineError as error:
        problems.add(use.place, "unknown-stack", error.message, error.hint or "")
        return
    if not is_there:
        message = f"{member.name} reads {short}, and there is no such stack"
        names = ", ".join(each for each in estate.members if each != member.name)
        hint = f"add it to {FILE}, or name one of {names}" if names else f"add it to {FILE}"
        problems.add(use.place, "unknown-stack", message, hint)


def check_estate(
    order: Order, names: Collection[str], problems: Diagnostics
) -> Mapping[str, PlannedTopology]:
    """Checks these stacks, and what is over all; what is wrong goes to `problems`.

    Returns what their topologies declare.
    """
    estate, exports = order.estate, order.exports()
    planned: dict[str, PlannedTopology] = {}
    if estate.file is not None:
        check_stacks_gates(estate.file, problems)
    for name in names:
        member = estate.members[name]
        problems.extend(order.found[name])
        _check_settings(member, problems)
        if not order.told[name].has_program:
            _tell_missing(member, problems)
        found = order.told[name].check(exports, problems)
        if found is not None:
            planned[name] = found
        check_gates(member.project.directory, problems)
    return planned


def _check_settings(member: Member, problems: Diagnostics) -> None:
    """A name that no settings have, beside others that some have, is probably misspelt."""
    path = member.project.settings_path(member.stack)
    others = stacks_with_settings(member.project)
    if others and not path.exists():
        message = f"there is no {path.name} for the stack {member.name}"
        near = find_nearest_name(member.stack, tuple(others))
        meant = f"did you mean {near}?" if near else f"there is {', '.join(others)}"
        hint = f"{meant}; `gpuform stack init --all` makes it"
        problems.add(member.place, "unknown-stack", message, hint)


def _tell_missing(member: Member, problems: Diagnostics) -> None:
    program = member.project.program
    why = "has neither topology.yaml nor __main__.py" if program.is_dir() else "does not exist"
    hint = "write it, or name its folder or file as `main` in Pulumi.yaml"
    place = SourcePosition(format_path(member.project.path))
    problems.add(place, "program", f"there is no program: {format_path(program)} {why}", hint)


_DEPENDANTS: Final = "..."
_DIFF: Final = re.compile(r"\[(?P<base>[^\[\]]*?)(?:\.\.\.(?P<head>[^\[\]]*))?\]")
_REVISION: Final = re.compile(r"[^-\s]\S*")
_FORMS: Final = (
    "write a name such as network/prod or clusters-*/prod, a folder such as ./clusters, or a git "
    "diff such as [main]; `...` before it adds the dependants"
)


def filtered(order: Order, filters: Sequence[str]) -> set[str]:
    """The names of the members that one of the filters means; all of them without filters.

    Raises EstateError for a filter that nobody understands, or that means none.
    """
    if not filters:
        return set(order.estate.members)
    found: set[str] = set()
    for text in filters:
        what = text.removeprefix(_DEPENDANTS)
        chosen = _chosen(order, text, what)
        found |= order.dependants(chosen) if what != text else set(chosen)
    return found


def _chosen(order: Order, text: str, what: str) -> list[str]:
    estate, members = order.estate, order.estate.members.values()
    if what.startswith("["):
        match = _DIFF.fullmatch(what)
        if match is None:
            raise EstateError(f"--filter {text} is not understood", hint=_FORMS)
        # A diff may touch nothing: that is an answer.
        return _touched(order, match["base"], match["head"])
    if what.startswith((".", "/")):
        folder = Path(what)
        found = [each.name for each in members if _is_in(each, folder)]
    else:
        found = [each.name for each in members if _is_named(each, what)]
    if not found:
        names = ", ".join(estate.members)
        raise EstateError(
            f"--filter {text} means none of the stacks", hint=f"there is {names}; {_FORMS}"
        )
    return found


def _is_named(member: Member, pattern: str) -> bool:
    """By `PROJECT/STACK`, or by one of them alone."""
    texts = (member.name, member.project.name, member.stack)
    return any(fnmatchcase(text, pattern) for text in texts)


def _is_in(member: Member, pattern: Path) -> bool:
    """Whether its folder is this one, one that the pattern means, or below it."""
    parts = pattern.parts
    plain = next((at for at, part in enumerate(parts) if "*" in part), len(parts))
    start, own = Path(*parts[:plain]).resolve(), member.project.directory.resolve()
    if not own.is_relative_to(start):
        return False
    wanted, rest = parts[plain:], own.relative_to(start).parts
    return len(rest) >= len(wanted) and all(
        fnmatchcase(part, each) for part, each in zip(rest, wanted, strict=False)
    )


def _touched(order: Order, base: str, head: str | None) -> list[str]:
    """Members with a changed file in their folder, or among what their topology includes.

    A change outside of all of them, such as of a package that several programs import, touches
    those whose files name it; of stacks.yaml, all.
    """
    estate = order.estate
    for revision in (base, head or "HEAD"):
        if not _REVISION.fullmatch(revision):
            raise EstateError(f"{revision!r} is no revision of git", hint=_FORMS)
    top = Path(_git(estate.root, "rev-parse", "--show-toplevel").strip())
    what = [f"{base}...{head}"] if head else [_merge_base(estate.root, base)]
    names = _git(estate.root, "diff", "--name-only", "-z", "--no-renames", *what, "--")
    if head is None:  # what is not committed yet counts, too
        names += _git(
            estate.root, "ls-files", "--others", "--exclude-standard", "-z", "--full-name"
        )
    changed = [top / name for name in names.split("\0") if name]
    if estate.file is not None and estate.file.resolve() in changed:
        return list(estate.members)
    return [name for name in estate.members if _is_touched(name, order, changed)]


def _merge_base(root: Path, base: str) -> str:
    """A pull request is what came since it left the branch, not what the branch got meanwhile."""
    return _git(root, "merge-base", base, "HEAD").strip()


def _is_touched(name: str, order: Order, changed: Iterable[Path]) -> bool:
    member, files = order.estate.members[name], order.told[name].files
    own = member.project.directory.resolve()
    others = [
        each.project.directory.resolve()
        for each in order.estate.members.values()
        if each.project.path != member.project.path
    ]
    inner = [other for other in others if other.is_relative_to(own) and other != own]
    settings = member.project.settings_path(member.stack)
    for path in changed:
        if path in files or path == settings.resolve():
            return True
        if path.is_relative_to(own):
            if any(path.is_relative_to(other) for other in inner):
                continue
            if _is_settings_of_another(path, settings):
                continue
            return True
        if not any(path.is_relative_to(other) for other in others) and _names(member, path):
            return True
    return False


def _is_settings_of_another(path: Path, settings: Path) -> bool:
    is_settings = path.name.startswith("Pulumi.") and path.suffix == settings.suffix
    return is_settings and path.name not in (settings.name, f"Pulumi{settings.suffix}")


def _names(member: Member, path: Path) -> bool:
    """Whether a file of the member's folder names this one, as a `main` or an `import` does."""
    said = path.stem if path.suffix == ".py" and path.stem != "__init__" else path.name
    said = path.parent.name if path.name == "__init__.py" else said
    for file in member.project.directory.glob("*"):
        if file.suffix in (".yaml", ".yml", ".py", ".toml", ".txt") and file.is_file():
            try:
                if said in file.read_text(encoding="utf-8", errors="replace"):
                    return True
            except OSError:
                continue
    return False


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - revisions are checked, and no shell is between
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the person's own git
            capture_output=True,
            check=False,
        )
    except OSError as error:
        raise EstateError(
            "git cannot be run, which tells what was changed", hint="install git, or name stacks"
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise EstateError(
            f"git cannot tell what was changed: {said[-1] if said else 'it failed'}",
            hint="in a CI job the base has to be fetched: `git fetch origin main`",
        )
    return done.stdout.decode(errors="surrogateescape")
