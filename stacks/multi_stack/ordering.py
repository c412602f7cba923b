"""Order the stacks of a workspace by what they read of each other and by `after`, and validate them
all.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from gpuform.schemas.checking import nearest
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.store import Backend, without_credentials
from gpuform.stacks.gates.file import check_gates, check_gates_over
from gpuform.stacks.multi_stack.members import FILE, Estate, Member
from gpuform.stacks.multi_stack.reading import stacks_with_settings
from gpuform.stacks.multi_stack.references import StackUse, Told, told_by
from gpuform.stacks.topology.files import shown
from gpuform.stacks.topology.planning import Planned


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
            f"{without_credentials(known.backend)}, and not {without_credentials(member.backend)}"
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
) -> Mapping[str, Planned]:
    """Checks these stacks, and what is over all; what is wrong goes to `problems`.

    Returns what their topologies declare.
    """
    estate, exports = order.estate, order.exports()
    planned: dict[str, Planned] = {}
    if estate.file is not None:
        check_gates_over(estate.file, problems)
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
        near = nearest(member.stack, tuple(others))
        meant = f"did you mean {near}?" if near else f"there is {', '.join(others)}"
        hint = f"{meant}; `gpuform stack init --all` makes it"
        problems.add(member.place, "unknown-stack", message, hint)


def _tell_missing(member: Member, problems: Diagnostics) -> None:
    program = member.project.program
    why = "has neither topology.yaml nor __main__.py" if program.is_dir() else "does not exist"
    hint = "write it, or name its folder or file as `main` in Pulumi.yaml"
    place = SourcePosition(shown(member.project.path))
    problems.add(place, "program", f"there is no program: {shown(program)} {why}", hint)
