"""Plan an import: which objects are new, already in the stack, or owned by another stack.

`gpuform.stacks.operations.importing` calls `plan_import`, and then writes and runs the plan.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.operations import Settings
from gpuform.providers.platform import FORM_CONFIG
from gpuform.providers.resource import parse_form
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.declaration_writer.declarations import Declarations
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import build_full_name, find_owners
from gpuform.stacks.engine.urn import make_urn, name_of
from gpuform.stacks.importing.declaration_files import ProjectDeclarations, list_declared_resources
from gpuform.stacks.importing.declarations import (
    DeclarationOptions,
    ImportDeclaration,
    ObservedObject,
    ResourceNames,
    build_declaration,
    find_value_problems,
    read_objects,
)
from gpuform.stacks.importing.selection import (
    ImportChoice,
    ImportRefused,
    ObjectKey,
    Owner,
    list_managed_objects,
    map_owners,
)

_NO_DECLARATION = ImportDeclaration(Declarations(), {})


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """The objects to import, and the project and stack to import them into.

    `reload_declarations` reads the declarations again, after their files have changed. `parent` is
    the URN of the parent of the new resources, or empty. With `is_single_object` the user named the
    object: if another stack owns it, the import is refused instead of the object skipped.
    """

    stack: Stack
    selected_objects: Sequence[ImportChoice]
    declarations: ProjectDeclarations
    reload_declarations: Callable[[], ProjectDeclarations]
    settings: Settings
    options: DeclarationOptions
    parent: str = ""
    is_single_object: bool = False


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """A resource that the update imports; `urn` may be a pattern."""

    platform: str
    kind: str
    id: str
    name: str
    urn: str


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What an import has to do.

    `declaration` is to be written. `targets` are the resources to import: new ones, and those whose
    entries name an object already. `finished_targets` are in the state, but their entries still
    have the `import` option. `messages` and `warnings` are for the user.
    """

    request: ImportRequest
    declaration: ImportDeclaration = _NO_DECLARATION
    targets: Sequence[ImportTarget] = ()
    finished_targets: Sequence[ImportTarget] = ()
    messages: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def find_imported_targets(self, resources: Iterable[ResourceState]) -> list[ImportTarget]:
        """Return the targets that resources of the same name already manage in a state."""
        managed_objects = {
            (key, name_of(resource.urn))
            for resource in resources
            for key in list_managed_objects(resource)
        }
        return [
            target
            for target in self.targets
            if ((target.platform, target.kind, target.id), target.name) in managed_objects
        ]


def plan_import(request: ImportRequest) -> ImportPlan:
    """Return the plan of an import, after reading new objects from the platforms.

    Nothing is written or changed. Objects that this stack has already are only reported. Of several
    objects, those of other stacks and those with values that a declaration refuses are skipped,
    with a message.

    Raises:
        ImportRefused: a name is taken, a value is missing, or another stack owns the object.
        EngineError: an object, or the state of another stack, cannot be read.
    """
    resources = request.stack.snapshot.resources
    sorter = _ObjectSorter(request, *_find_owners(request), _map_interrupted_creates(request.stack))
    for choice in request.selected_objects:
        sorter.add(choice)
    # Requested names are checked first; derived names are chosen around them later.
    names = ResourceNames(_collect_names(request.declarations, resources))
    for choice in sorter.new:
        if (choice.section, choice.name) in names.taken:
            message = f"a resource {choice.section}.{choice.name} already exists"
            raise ImportRefused(message, hint="choose another NAME")
    new_declaration, warnings = _NO_DECLARATION, list[str]()
    observed_objects: list[ObservedObject] = []
    if sorter.new:
        observed_objects = read_objects(sorter.new, request.settings)
        # The one object that the user named is refused with all its problems instead.
        if not request.is_single_object:
            observed_objects, warnings = _drop_undeclarable_objects(observed_objects)
        declared = list_declared_resources(request.declarations, resources)
        new_declaration = build_declaration(observed_objects, names, declared, request.options)
    entries = zip(new_declaration.declared.entries, observed_objects, strict=True)
    new = [_build_target(request, entry.name, observed.choice) for entry, observed in entries]
    targets = [*sorter.pending, *new]
    return ImportPlan(
        request, new_declaration, targets, sorter.finished_targets, sorter.messages, warnings
    )


def _drop_undeclarable_objects(
    observed_objects: Sequence[ObservedObject],
) -> tuple[list[ObservedObject], list[str]]:
    """Return the objects with valid values, and a warning for each other object.

    An object of somebody else with an invalid value must not stop the import of the account's
    others.
    """
    declarable, warnings = list[ObservedObject](), list[str]()
    for observed in observed_objects:
        problems = "; ".join(find_value_problems(observed))
        object_name = f" ({observed.choice.object_name!r})" if observed.choice.object_name else ""
        label = f"{observed.choice}{object_name}"
        if problems:
            warnings.append(f"{label}: skipped, because a declaration refuses a value: {problems}")
        else:
            declarable.append(observed)
    return declarable, warnings


_Owners = Mapping[ObjectKey, Owner]


def _find_owners(request: ImportRequest) -> tuple[_Owners, _Owners]:
    """Return the owners in this stack, and the owners in all other stacks of the backend.

    Raises:
        EngineError: the state of another stack cannot be read, so that its objects are unknown.
    """
    stack = request.stack
    own_name = build_full_name(stack.project.name, stack.name)
    others = find_owners(stack.backend, excluded_stack=own_name)
    for unreadable in others.unreadable:
        # An unreadable state may own the object: an import could take it away.
        raise unreadable
    own_owners = map_owners((own_name, resource) for resource in stack.snapshot.resources)
    return own_owners, map_owners(others.resources)


def _map_interrupted_creates(stack: Stack) -> Mapping[str, str]:
    """Return the resource names of interrupted creates, by the ids of made objects."""
    return {
        id_: name_of(intent.urn)
        for intent in stack.get_intents().list_all()
        for id_ in (intent.id, *intent.ids)
        if id_ and intent.urn
    }


@dataclass(slots=True)
class _ObjectSorter:
    """Sort objects into new, pending and finished ones; `messages` say why others are skipped.

    `interrupted_creates` are the names of resources by the ids of the objects that their creates
    made.
    """

    request: ImportRequest
    own_owners: _Owners
    other_owners: _Owners
    interrupted_creates: Mapping[str, str]
    new: list[ImportChoice] = field(default_factory=list)
    pending: list[ImportTarget] = field(default_factory=list)
    finished_targets: list[ImportTarget] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    def add(self, choice: ImportChoice) -> None:
        """Add one object to the matching list, or skip the object with a message.

        An object that this stack owns is reported. An object that an entry names is pending. An
        object that another stack owns, or that an interrupted create made, is skipped. Every other
        object is new. An object that resources only bind may be new again, under another name or in
        another stack.

        Raises:
            ImportRefused: the object would be skipped, and the user named it alone.
        """
        is_bound = load_lifecycle_class(choice.platform, choice.kind).is_bound
        pending_name = self.request.declarations.pending_imports.get(choice.key)
        own_owner, other_owner = self.own_owners.get(choice.key), self.other_owners.get(choice.key)
        if is_bound and own_owner is not None and choice.name not in ("", name_of(own_owner.urn)):
            own_owner = None  # any number of resources may stand for it
        interrupted_name = self.interrupted_creates.get(choice.id)
        if own_owner is not None:
            self._add_owned(choice, own_owner, pending_name)
        elif pending_name is not None and choice.name in ("", pending_name):
            self.messages.append(f"{choice}: already declared as {pending_name}")
            # The entry's resource may have any parent: the URN's middle is unknown before the
            # update.
            urns = f"**gpuform.{choice.platform}:{choice.kind}::{pending_name}"
            self.pending.append(ImportTarget(*choice.key, pending_name, urns))
        elif other_owner is not None and not is_bound:
            message = f"{choice}: belongs to {other_owner.urn} of stack {other_owner.stack}"
            self._skip_or_refuse(message, "`gpuform state move` moves a resource to this stack")
        elif (choice.section, interrupted_name) in self.request.declarations.names:
            message = f"{choice}: an interrupted run created it for {interrupted_name}"
            self._skip_or_refuse(message, "`gpuform up` adopts it")
        else:
            self.new.append(choice)

    def _skip_or_refuse(self, reason: str, hint: str) -> None:
        """Report a skipped object, or raise ImportRefused for an object named alone."""
        if self.request.is_single_object:
            raise ImportRefused(reason, hint=hint)
        self.messages.append(f"{reason}: skipped; {hint}")

    def _add_owned(self, choice: ImportChoice, owner: Owner, pending_name: str | None) -> None:
        """Report an object of this stack; add a finished target if an entry still names the id."""
        name = name_of(owner.urn)
        is_declared = (choice.section, name) in self.request.declarations.names
        suffix = "" if is_declared else "; its declaration was not found"
        self.messages.append(f"{choice}: already in the stack as {name}{suffix}")
        # The import has succeeded, but was interrupted before the option was removed.
        if pending_name is not None:
            self.finished_targets.append(ImportTarget(*choice.key, name, owner.urn))


def _collect_names(
    declarations: ProjectDeclarations, resources: Iterable[ResourceState]
) -> set[tuple[str, str]]:
    """Return the section and name of each entry, and of each resource only in the state."""
    sections = {kind: section for section, kind in SECTIONS.items()}
    used_names = set(declarations.names)
    for resource in resources:
        # The first key is the resource's own object, the others are its parts.
        for _, kind, _ in islice(list_managed_objects(resource), 1):
            used_names.add((sections[kind], name_of(resource.urn)))
    return used_names


def _build_target(request: ImportRequest, name: str, choice: ImportChoice) -> ImportTarget:
    """Return the target with the URN that the new entry's resource will have."""
    stack = request.stack
    form = parse_form(request.settings.config(FORM_CONFIG), stack.name)
    type_ = form.build_type(choice.platform, choice.kind)
    urn = make_urn(stack.name, stack.project.name, request.parent, type_, name)
    return ImportTarget(*choice.key, name, urn)
