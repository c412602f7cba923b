"""What an import comes to: what is new, what is there already, and what somebody else has."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gpuform.providers.actions import Settings
from gpuform.providers.catalog import lifecycle_class
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.adopting.chosen import Wanted
from gpuform.stacks.adopting.declaring import Choices, Declaration, Names, declaration
from gpuform.stacks.adopting.owned import objects_of, owners_of
from gpuform.stacks.adopting.places import Place, known
from gpuform.stacks.adopting.reading import read
from gpuform.stacks.authoring.declared import Declared
from gpuform.stacks.engine.backend import full_name
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.owners import owners
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import DYNAMIC_PACKAGE, make_urn, name_of

_NOTHING = Declaration(Declared(), {})


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: these objects, declared in this way and place.

    `read_place` reads the place anew, as it has become.
    `parent` is the URN of the resource that the new ones are shown under, or empty; `is_sole` says
    that the object was named, so that it may not be somebody else's.
    """

    stack: Stack
    wanted: Sequence[Wanted]
    place: Place
    read_place: Callable[[], Place]
    settings: Settings
    choices: Choices
    parent: str = ""
    is_sole: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A resource that is to stand for an object; `urn` may be a pattern."""

    platform: str
    kind: str
    id: str
    name: str
    urn: str


@dataclass(frozen=True, slots=True)
class Adoption:
    """What there is to do.

    `made` is to be written, `targets` are to be adopted: what is written, and what entries name
    already. `finished` are in the state, and their entries name them still. `told` is for people.
    """

    request: Request
    made: Declaration = _NOTHING
    targets: Sequence[Target] = ()
    finished: Sequence[Target] = ()
    told: Sequence[str] = ()

    def adopted(self, resources: Iterable[ResourceState]) -> list[Target]:
        """The targets that a state has."""
        there = {(key, name_of(each.urn)) for each in resources for key in objects_of(each)}
        return [t for t in self.targets if ((t.platform, t.kind, t.id), t.name) in there]


def adoption_of(request: Request) -> Adoption:
    """Asks the platforms about what is new. Raises EngineError with what stands in the way."""
    resources = request.stack.snapshot.resources
    place = request.place
    sorted_ = _sorted(request)
    names = Names(_names(place, resources))
    for each in sorted_.new:
        if (each.section, each.name) in names.taken:
            message = f"there is a resource {each.section}.{each.name} already"
            raise EngineError(message, hint="give the new one another NAME")
    made = _NOTHING
    if sorted_.new:
        found = read(sorted_.new, request.settings)
        made = declaration(found, names, known(place, resources), request.choices)
    entries = zip(made.declared.entries, sorted_.new, strict=True)
    new = [_new_target(request, entry.name, wanted) for entry, wanted in entries]
    targets = [*sorted_.pending, *new]
    return Adoption(request, made, targets, sorted_.finished, sorted_.told)


@dataclass(slots=True)
class _Sorted:
    new: list[Wanted] = field(default_factory=list)
    pending: list[Target] = field(default_factory=list)
    finished: list[Target] = field(default_factory=list)
    told: list[str] = field(default_factory=list)


def _sorted(request: Request) -> _Sorted:
    own = full_name(request.stack.project.name, request.stack.name)
    others = owners(request.stack.backend, besides=own)
    for unreadable in others.unreadable:
        raise unreadable
    mine = owners_of((own, each) for each in request.stack.snapshot.resources)
    theirs = owners_of(others.resources)
    found = _Sorted()
    for each in request.wanted:
        is_bound = lifecycle_class(each.platform, each.kind).is_bound
        owner = mine.get(each.key)
        pending = request.place.pending.get(each.key)
        if owner is not None and not (is_bound and each.name not in ("", name_of(owner.urn))):
            name = name_of(owner.urn)
            is_declared = (each.section, name) in request.place.names
            undeclared = "" if is_declared else "; its declaration was not found"
            found.told.append(f"{each}: is in the stack already, as {name}{undeclared}")
            if pending is not None:
                found.finished.append(_target(each, name_of(owner.urn), owner.urn))
        elif pending is not None and each.name in ("", pending):
            found.told.append(f"{each}: is declared already, as {pending}")
            pattern = f"**gpuform.{each.platform}:{each.kind}::{pending}"
            found.pending.append(_target(each, pending, pattern))
        elif not is_bound and each.key in theirs:
            text = f"{each}: belongs to {theirs[each.key].urn} of stack {theirs[each.key].stack}"
            if request.is_sole:
                raise EngineError(text, hint="`gpuform state move` gives a resource to a stack")
            found.told.append(f"{text}: left alone")
        else:
            found.new.append(each)
    return found


def _names(place: Place, resources: Iterable[ResourceState]) -> set[tuple[str, str]]:
    """Of what is declared, and of what only the state has still."""
    keys = ((key, each) for each in resources for key in objects_of(each))
    sections = {kind: section for section, kind in SECTIONS.items()}
    return place.names | {(sections[key[1]], name_of(each.urn)) for key, each in keys}


def _new_target(request: Request, name: str, wanted: Wanted) -> Target:
    stack = request.stack
    type_ = f"{DYNAMIC_PACKAGE}:dynamic/gpuform.{wanted.platform}:{wanted.kind}"
    urn = make_urn(stack.name, stack.project.name, request.parent, type_, name)
    return _target(wanted, name, urn)


def _target(wanted: Wanted, name: str, urn: str) -> Target:
    return Target(*wanted.key, name, urn)
