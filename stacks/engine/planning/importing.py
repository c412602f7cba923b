"""The `import_` option: an object that exists already becomes a resource of the stack.

The platform is asked what the object is; what the declaration wants otherwise is changed in the
same run, after the plan has shown it. A declaration that would replace the object is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.forms import PROVIDER_KEY
from gpuform.providers.importing import parse_import_input, parse_object_id
from gpuform.providers.lifecycle import Lifecycle
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import steps as resource_diff
from gpuform.stacks.engine.planning.constraints import check_inputs
from gpuform.stacks.engine.planning.events import describe
from gpuform.stacks.engine.planning.steps import Op, Step
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.records import errors_of_engine
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import OtherStacks, Owners
from gpuform.stacks.engine.urn import is_own, own_type


def is_wanted(registration: Registration, old: ResourceState | None) -> bool:
    """Whether the option still has something to do.

    Raises EngineError when the resource stands for another object.
    """
    if not registration.import_id:
        return False
    if old is None or old.external:
        return True
    if old.import_id == registration.import_id or old.id == _object_id(registration):
        return False
    raise EngineError(
        f"{registration.urn} has the id {old.id} in the state, and import_ names "
        f"{registration.import_id}",
        hint="remove import_, or give the object to import a resource of its own",
    )


_Key = tuple[str, str, object]
"""The type and the id of an object, and the provider of one that is not gpuform's own."""


@dataclass(slots=True)
class Owned:
    """The objects that somebody has already: none of them is imported a second time.

    `base` is what the stack itself has, `others` are the other stacks of its backend.
    """

    host: ProviderHost
    base: Iterable[ResourceState]
    others: OtherStacks | None
    preview: bool
    _owners: dict[_Key, str] = field(default_factory=dict)
    _is_read: bool = False

    def take(self, registration: Registration) -> None:
        """Notes an import. Raises EngineError when the object is another resource's."""
        if not self.host.is_bound(registration.urn, registration.inputs):
            key = _key(registration.type, _object_id(registration), registration.inputs)
            self._take(registration.urn, key)

    def take_parts(self, imported: ResourceState) -> None:
        """The same for what an imported object is made of."""
        for key in self._parts(imported):
            self._take(imported.urn, key)

    def _take(self, urn: str, key: _Key) -> None:
        self._read()
        owner = self._owners.setdefault(key, urn)
        if owner != urn:
            raise EngineError(
                f"{urn}: import_ names {key[1]}, which {owner} stands for",
                hint="give it that resource's name as an alias instead of import_; what another "
                "stack has is moved with `gpuform state move`",
            )

    def _read(self) -> None:
        if self._is_read:
            return
        others = self.others.owners(claim=not self.preview) if self.others else Owners()
        for unreadable in others.unreadable:
            raise unreadable
        self._is_read = True
        own = [e for e in self.base if e.id and not e.external and not e.pending_replacement]
        known = [(each, f"{each.urn} of this stack") for each in own]
        known += [(each, f"{each.urn} of stack {stack}") for stack, each in others.resources]
        for entry, owner in known:
            for key in (_key(entry.type, entry.id, entry.inputs), *self._parts(entry)):
                self._owners.setdefault(key, owner)

    def _parts(self, entry: ResourceState) -> list[_Key]:
        if not is_own(entry.type):
            return []  # another program's provider is nothing to load
        type_ = self.host.part_type(entry)
        return [(own_type(type_), id_, "") for id_ in self.host.parts(entry)]


def _key(type_: str, id_: str, inputs: values.PropertyMap) -> _Key:
    provider = "" if is_own(type_) else values.unwrap_secrets(inputs.get(PROVIDER_KEY))
    return own_type(type_) or type_, id_, provider


def steps(
    host: ProviderHost,
    registration: Registration,
    old: ResourceState | None,
    goal: ResourceState,
    *,
    as_of: float,
) -> list[Step]:
    """Reads the object and takes it over; then changes what `goal` wants otherwise.

    `old` is an entry of an object that the program has only read so far; what the object was at any
    moment since `as_of` will do, so that many share one list.
    Raises EngineError when there is no such object or it does not fit the declaration.
    """
    id_ = _object_id(registration)
    goal.inputs = check_inputs(host, registration, {}, registration.inputs, goal.provider)
    _refuse_other(registration, goal)
    found = host.read(goal.urn, id_, goal.inputs, goal.inputs, provider=goal.provider, as_of=as_of)
    if found is None:
        raise EngineError(
            f"{goal.urn}: import_ names {id_}, and the platform has no such object",
            hint="check the id, and that the credentials are those of its owner",
        )
    read, read_inputs = found
    outputs = values.mark_secret_outputs(read.outputs, goal.inputs, goal.additional_secret_outputs)
    goal.import_id = registration.import_id
    imported = replace(
        goal,
        id=read.id,
        inputs=_known(goal, outputs) if read_inputs is None else read_inputs,
        outputs=outputs,
        init_errors=list(read.init_errors),
    )
    diff = resource_diff.compare(host, imported, goal)
    if diff.changes and diff.replaces:
        raise EngineError(
            f"{goal.urn}: the object {id_} differs from its declaration in "
            f"{', '.join(diff.replaces)}, which would replace it",
            hint="declare it as it is",
        )
    if not diff.changes:
        imported.inputs = goal.inputs
    change = describe(host, Op.IMPORT, imported, imported)
    taken = Step(Op.IMPORT, goal.urn, old, imported, change=change)
    if not diff.changes:
        return [taken]
    update = describe(host, Op.UPDATE, imported, goal, diff)
    return [taken, Step(Op.UPDATE, goal.urn, imported, goal, change=update)]


def _object_id(registration: Registration) -> str:
    """The id that import_ names: of gpuform's own resources perhaps with an input behind it."""
    kind = _kind(registration)
    return parse_object_id(kind, registration.import_id) if kind else registration.import_id


def _kind(registration: Registration) -> type[Lifecycle[Any, Any]] | None:
    platform, _, kind = own_type(registration.type).partition(":")
    return load_lifecycle_class(platform, kind) if kind else None


def _refuse_other(registration: Registration, goal: ResourceState) -> None:
    """Raises EngineError where import_ names an input otherwise than it is declared."""
    kind = _kind(registration)
    if kind is None:
        return
    with errors_of_engine():
        given = parse_import_input(kind, registration.import_id)
    for name, value in given.items():
        declared = values.unwrap_secrets(goal.inputs.get(name))
        if declared is not values.UNKNOWN and declared != value:
            raise EngineError(
                f"{goal.urn}: import_ names the {name} {value}, and another one is declared",
                hint="declare what is behind the @, or leave that out",
            )


def _known(goal: ResourceState, outputs: values.PropertyMap) -> values.PropertyMap:
    """The declared inputs with the object's own values where its outputs have them."""
    return {key: outputs.get(key, value) for key, value in goal.inputs.items()}
