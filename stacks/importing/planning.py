"""What an import comes to: what is new, what is there already, and what somebody else has."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.chosen_form import parse_form
from gpuform.providers.forms import FORM_CONFIG
from gpuform.providers.operations import Settings
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.declaration_writer.declarations import Declarations
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import build_full_name, find_owners
from gpuform.stacks.engine.urn import make_urn, name_of
from gpuform.stacks.importing.chosen import ImportChoice, Key, NotImported
from gpuform.stacks.importing.declaring import (
    Choices,
    Declaration,
    Found,
    Names,
    declaration,
    find_value_problems,
    read,
)
from gpuform.stacks.importing.orphans import Owner, objects_of, owners_of
from gpuform.stacks.importing.places import DeclarationPlace, known

_NOTHING = Declaration(Declarations(), {})


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: these objects, declared in this way and place.

    `read_place` reads the place anew, as it has become. `parent` is the URN of the resource that
    the new ones are shown under, or empty; `is_sole` says that the object was named, so that it may
    not be somebody else's.
    """

    stack: Stack
    wanted: Sequence[ImportChoice]
    place: DeclarationPlace
    read_place: Callable[[], DeclarationPlace]
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
    already. `finished` are in the state, and their entries name them still. `told` and `warnings`
    are for people.
    """

    request: Request
    made: Declaration = _NOTHING
    targets: Sequence[Target] = ()
    finished: Sequence[Target] = ()
    told: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def adopted(self, resources: Iterable[ResourceState]) -> list[Target]:
        """The targets that a state has."""
        there = {(key, name_of(each.urn)) for each in resources for key in objects_of(each)}
        return [t for t in self.targets if ((t.platform, t.kind, t.id), t.name) in there]


def adoption_of(request: Request) -> Adoption:
    """Asks the platforms about what is new. Raises EngineError with what stands in the way."""
    resources = request.stack.snapshot.resources
    sorting = _Sorting(request, *_owners(request), _begun(request.stack))
    for each in request.wanted:
        sorting.add(each)
    names = Names(_names(request.place, resources))
    for each in sorting.new:
        if (each.section, each.name) in names.taken:
            message = f"a resource {each.section}.{each.name} already exists"
            raise NotImported(message, hint="give the new one another NAME")
    made, found, warnings = _NOTHING, list[Found](), list[str]()
    if sorting.new:
        found = read(sorting.new, request.settings)
        if not request.is_sole:
            found, warnings = _without_undeclarable(found)
        made = declaration(found, names, known(request.place, resources), request.choices)
    entries = zip(made.declared.entries, found, strict=True)
    new = [_new_target(request, entry.name, each.wanted) for entry, each in entries]
    targets = [*sorting.pending, *new]
    return Adoption(request, made, targets, sorting.finished, sorting.told, warnings)


def _without_undeclarable(found: Sequence[Found]) -> tuple[list[Found], list[str]]:
    """Return what can be declared as it is, and a warning for each other object of the account.

    Somebody else's odd name must not keep the account's other objects from being imported.
    """
    declarable, warnings = list[Found](), list[str]()
    for each in found:
        problems = "; ".join(find_value_problems(each))
        called = f" ({each.wanted.called!r})" if each.wanted.called else ""
        if problems:
            warnings.append(f"{each.wanted}{called} is left out: it cannot be declared: {problems}")
        else:
            declarable.append(each)
    return declarable, warnings


_Owners = Mapping[Key, Owner]


def _owners(request: Request) -> tuple[_Owners, _Owners]:
    """Of the stack's own objects, and of those of other stacks."""
    stack = request.stack
    own = build_full_name(stack.project.name, stack.name)
    others = find_owners(stack.backend, excluded_stack=own)
    for unreadable in others.unreadable:
        raise unreadable
    mine = owners_of((own, each) for each in stack.snapshot.resources)
    return mine, owners_of(others.resources)


def _begun(stack: Stack) -> Mapping[str, str]:
    begun = ((each, each.urn) for each in stack.get_intents().list_all() if each.urn)
    return {id_: name_of(urn) for each, urn in begun for id_ in (each.id, *each.ids) if id_}


@dataclass(slots=True)
class _Sorting:
    """The objects by what there is to do about each.

    `begun` has the names of resources whose creates were interrupted, by the ids that these made.
    """

    request: Request
    mine: _Owners
    theirs: _Owners
    begun: Mapping[str, str]
    new: list[ImportChoice] = field(default_factory=list)
    pending: list[Target] = field(default_factory=list)
    finished: list[Target] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def add(self, wanted: ImportChoice) -> None:
        """Raises EngineError for a named object that another stack has."""
        is_bound = load_lifecycle_class(wanted.platform, wanted.kind).is_bound
        pending = self.request.place.pending.get(wanted.key)
        mine, theirs = self.mine.get(wanted.key), self.theirs.get(wanted.key)
        if is_bound and mine is not None and wanted.name not in ("", name_of(mine.urn)):
            mine = None  # any number of resources may stand for it
        if mine is not None:
            self._add_mine(wanted, mine, pending)
        elif pending is not None and wanted.name in ("", pending):
            self.told.append(f"{wanted}: is declared already, as {pending}")
            urns = f"**gpuform.{wanted.platform}:{wanted.kind}::{pending}"
            self.pending.append(Target(*wanted.key, pending, urns))
        elif theirs is not None and not is_bound:
            text = f"{wanted}: belongs to {theirs.urn} of stack {theirs.stack}"
            self._leave(text, "`gpuform state move` gives a resource to a stack")
        elif (wanted.section, self.begun.get(wanted.id)) in self.request.place.names:
            text = f"{wanted}: an interrupted run made it for {self.begun[wanted.id]}"
            self._leave(text, "`gpuform up` takes it over")
        else:
            self.new.append(wanted)

    def _leave(self, text: str, hint: str) -> None:
        if self.request.is_sole:
            raise NotImported(text, hint=hint)
        self.told.append(f"{text}: left alone, {hint}")

    def _add_mine(self, wanted: ImportChoice, owner: Owner, pending: str | None) -> None:
        name = name_of(owner.urn)
        is_declared = (wanted.section, name) in self.request.place.names
        undeclared = "" if is_declared else "; its declaration was not found"
        self.told.append(f"{wanted}: is in the stack already, as {name}{undeclared}")
        if pending is not None:
            self.finished.append(Target(*wanted.key, name, owner.urn))


def _names(place: DeclarationPlace, resources: Iterable[ResourceState]) -> set[tuple[str, str]]:
    """Of what is declared, and of what only the state has still."""
    sections = {kind: section for section, kind in SECTIONS.items()}
    found = set(place.names)
    for each in resources:
        for _, kind, _ in islice(objects_of(each), 1):
            found.add((sections[kind], name_of(each.urn)))
    return found


def _new_target(request: Request, name: str, wanted: ImportChoice) -> Target:
    stack = request.stack
    form = parse_form(request.settings.config(FORM_CONFIG), stack.name)
    type_ = form.build_type(wanted.platform, wanted.kind)
    urn = make_urn(stack.name, stack.project.name, request.parent, type_, name)
    return Target(*wanted.key, name, urn)
