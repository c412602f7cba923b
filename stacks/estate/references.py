"""What a stack reads of others, told by its topology or its program, without running anything."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuform.schemas.reasons import nearest
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing import full_name_of
from gpuform.stacks.engine.language_host import topology_of
from gpuform.stacks.engine.project import folder_and_entry
from gpuform.stacks.estate.members import Member, note
from gpuform.stacks.estate.programs import ProgramText, read_program
from gpuform.stacks.topology.declarations import Topology
from gpuform.stacks.topology.files import read_all
from gpuform.stacks.topology.loading import load
from gpuform.stacks.topology.offline import surroundings_of
from gpuform.stacks.topology.planning import Planned, Surroundings, plan, stacks_named

_Named = tuple[str, SourcePosition, str, tuple[tuple[str, SourcePosition], ...]]
"""What makes a StackUse, by the name that the member has for the stack."""


@dataclass(frozen=True, slots=True)
class StackUse:
    """A reference to another stack: its full name, and where it is written.

    `reference` is the topology's name for it; `outputs` are those that a program reads of it, each
    with its place.
    """

    stack: str
    place: SourcePosition
    reference: str = ""
    outputs: tuple[tuple[str, SourcePosition], ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What the files of a member tell.

    `exports` is None where only a run can tell all of them. `files` are those that its topology is
    read from.
    """

    uses: tuple[StackUse, ...] = ()
    exports: frozenset[str] | None = None
    topology: Path | None = None
    surroundings: Surroundings | None = field(default=None, repr=False)
    files: frozenset[Path] = frozenset()
    has_program: bool = True

    def check(
        self, exports: Mapping[str, Collection[str]], problems: Diagnostics
    ) -> Planned | None:
        """Checks all of a topology; `exports` are those of other stacks, by their full names.

        Returns what is declared, as far as files tell it; None of a program.
        """
        if self.topology is None:
            self._check_program(exports, problems)
            return None
        if self.surroundings is None:  # what is wrong with its settings is told already
            return None
        known = {u.reference: exports[u.stack] for u in self.uses if u.stack in exports}
        return plan(self.topology, replace(self.surroundings, exports=known), problems)

    def _check_program(self, exports: Mapping[str, Collection[str]], problems: Diagnostics) -> None:
        for use in self.uses:
            known = exports.get(use.stack)
            for output, place in use.outputs if known is not None else ():
                if output not in (known or ()):
                    near = nearest(output, tuple(known or ()))
                    there = f"there is {', '.join(sorted(known))}" if known else "it has none"
                    message = f"the stack {use.stack} has no output {output}"
                    hint = f"did you mean {near}?" if near else there
                    problems.add(place, "reference", message, hint)


def told_by(member: Member, problems: Diagnostics) -> Told:
    """What the member's topology or program tells; what is wrong in it goes to `problems`."""
    project = member.project
    try:
        folder, _ = folder_and_entry(project.program)
        found_topology = topology_of(project.program)
    except EngineError:
        return Told(has_program=False)
    if found_topology is None:
        about = {"project": project.name, "stack": member.stack}
        return _of_program(read_program(project.program, about), member, problems)
    topology = folder / found_topology.file
    found = Diagnostics()
    loaded = load(topology, found)
    files = frozenset(_files_of(loaded, topology))
    exports = None if found else frozenset(loaded.outputs)
    try:
        settings = member.stack if project.settings_path(member.stack).exists() else None
        surroundings = surroundings_of(topology, settings, project)
    except EngineError as error:
        problems.extend(found)
        note(error, project.settings_path(member.stack), problems)
        return Told((), exports, topology, None, files)
    surroundings = replace(surroundings, program={"project": project.name, "stack": member.stack})
    stacks = stacks_named(loaded, surroundings, found)
    problems.extend(found)
    places = {name: entry.node.place for name, entry in loaded.stack_references.items()}
    named = [(stack, places[name], name, ()) for name, stack in stacks.items()]
    uses = tuple(_uses(named, member, problems))
    return Told(uses, exports, topology, surroundings, files)


def _files_of(loaded: Topology, path: Path) -> Iterator[Path]:
    """The topology's own files, with those of its modules."""
    yield from (file.path.resolve() for file in read_all(path, Diagnostics()))
    for module in loaded.modules.values():
        yield from _files_of(module.topology, module.file)


def _of_program(text: ProgramText, member: Member, problems: Diagnostics) -> Told:
    named = [
        (stack, place, "", tuple((output, at) for of, output, at in text.read if of == stack))
        for stack, place in text.stacks
    ]
    exports = frozenset(text.exports) if text.is_whole else None
    uses = tuple(_uses(named, member, problems))
    return Told(uses, exports, has_program=text.is_there)


def _uses(named: Iterable[_Named], member: Member, problems: Diagnostics) -> Iterator[StackUse]:
    for stack, place, reference, outputs in named:
        try:
            full_name = full_name_of(stack, member.project.name)
        except EngineError as error:
            problems.add(place, "unknown-stack", error.message, error.hint or "")
        else:
            yield StackUse(full_name, place, reference, outputs)
