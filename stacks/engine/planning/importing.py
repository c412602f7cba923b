"""Plan the `import_` option: an existing object becomes a resource of the stack.

The step generator calls this module. The provider reads the object; where the declaration differs,
an update in the same run changes the object after the plan has shown it. A declaration that would
replace the object is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from gpuform.providers import values
from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.importing import parse_import_input, parse_object_id
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import PROVIDER_KEY
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.planning import steps as resource_diff
from gpuform.stacks.engine.planning.constraints import check_inputs
from gpuform.stacks.engine.planning.events import describe_change
from gpuform.stacks.engine.planning.steps import Op, Step
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import OtherStacks, Owners
from gpuform.stacks.engine.urn import get_own_type, is_own


def should_import(registration: Registration, old: ResourceState | None) -> bool:
    """Return True if the object named by `import_` is not in the state yet, or only read so far.

    False for a registration without `import_`.

    Raises:
        EngineError: the resource already has another object in the state.
    """
    if not registration.import_id:
        return False
    if old is None or old.external:
        return True
    if old.import_id == registration.import_id or old.id == _parse_import_id(registration):
        return False
    raise EngineError(
        f"{registration.urn} has the id {old.id} in the state, but import_ names "
        f"{registration.import_id}",
        hint="remove import_, or declare another resource for the object to import",
    )


_ObjectKey = tuple[str, str, object]
"""Type and id of an object, and its provider unless the provider is gpuform's own."""


@dataclass(slots=True)
class OwnedObjects:
    """The objects that resources already own, so that no object is imported twice.

    `base` are the entries of the stack itself, `others` the other stacks of its backend.
    """

    host: ProviderHost
    base: Iterable[ResourceState]
    others: OtherStacks | None
    preview: bool
    _owners: dict[_ObjectKey, str] = field(default_factory=dict)
    _is_loaded: bool = False

    def claim_object(self, registration: Registration) -> None:
        """Record the object of an import as owned by the registered resource.

        An object that its provider neither creates nor deletes is not recorded: resources may share
        it.

        Raises:
            EngineError: another resource owns the object, or another stack cannot be read.
        """
        # Several resources may share the id of an object that their provider neither creates nor
        # deletes.
        if not self.host.is_bound(registration.urn, registration.inputs):
            key = _build_object_key(
                registration.type, _parse_import_id(registration), registration.inputs
            )
            self._claim(registration.urn, key)

    def claim_parts(self, imported: ResourceState) -> None:
        """Record the parts of an imported object as owned by `imported`.

        Raises:
            EngineError: another resource owns a part, or another stack cannot be read.
        """
        for key in self._list_part_keys(imported):
            self._claim(imported.urn, key)

    def _claim(self, urn: str, key: _ObjectKey) -> None:
        """Record the owner of an object. Raises EngineError if another resource owns it."""
        self._load_owners()
        owner = self._owners.setdefault(key, urn)
        if owner != urn:
            raise EngineError(
                f"{urn}: import_ names {key[1]}, which belongs to {owner}",
                hint="if the resource was renamed, replace import_ by an alias with the earlier "
                "name; to move the object from another stack, run `gpuform state move`",
            )

    def _load_owners(self) -> None:
        """Read the owners of all existing objects, once; an object that is only read has none.

        A real run also claims the imports: no other stack imports until its end.

        Raises:
            EngineError: another stack cannot be read, or is importing.
        """
        if self._is_loaded:
            return
        others = self.others.find_owners(claim=not self.preview) if self.others else Owners()
        for unreadable in others.unreadable:
            raise unreadable
        self._is_loaded = True
        own_entries = [
            # An external entry only reads its object; after the deletion for a replacement there is
            # none.
            e
            for e in self.base
            if e.id and not e.external and not e.pending_replacement
        ]
        owned_entries = [
            (owned_entry, f"{owned_entry.urn} of this stack") for owned_entry in own_entries
        ]
        owned_entries += [
            (owned_entry, f"{owned_entry.urn} of stack {stack}")
            for stack, owned_entry in others.resources
        ]
        for entry, owner in owned_entries:
            for key in (
                _build_object_key(entry.type, entry.id, entry.inputs),
                *self._list_part_keys(entry),
            ):
                self._owners.setdefault(key, owner)

    def _list_part_keys(self, entry: ResourceState) -> list[_ObjectKey]:
        """Return the keys of the object's parts; none for a type that is not gpuform's."""
        if not is_own(entry.type):
            # Finding the parts of a foreign type would unpickle the provider of another program.
            return []
        type_ = self.host.get_part_type(entry)
        return [(get_own_type(type_), id_, "") for id_ in self.host.list_part_ids(entry)]


def _build_object_key(type_: str, id_: str, inputs: values.PropertyMap) -> _ObjectKey:
    """Build the key of an object: the type without form, the id, and a dynamic provider."""
    # All dynamic resources of other programs have one type token, so that their pickled provider
    # has to tell them apart.
    provider = "" if is_own(type_) else values.unwrap_secrets(inputs.get(PROVIDER_KEY))
    return get_own_type(type_) or type_, id_, provider


def build_import_steps(
    host: ProviderHost,
    registration: Registration,
    old: ResourceState | None,
    goal: ResourceState,
    *,
    as_of: float,
) -> list[Step]:
    """Return the import step, and an update step if the declaration differs from the object.

    Completes `goal`. `old` is an entry of an object that the program only read so far. `as_of` is a
    monotonic time: a cached listing of the platform is used if it was made after that time.

    Raises:
        EngineError: the object does not exist, does not fit the declaration, or would be replaced.
    """
    object_id = _parse_import_id(registration)
    goal.inputs = check_inputs(
        host, registration, {}, registration.inputs, goal.provider, existing={}
    )
    _refuse_contradicting_input(registration, goal)
    # The stock host fails on a read without `__provider` (KeyError), so the declared inputs are
    # sent as properties.
    read_result = host.read(
        goal.urn, object_id, goal.inputs, goal.inputs, provider=goal.provider, as_of=as_of
    )
    if read_result is None:
        raise EngineError(
            f"{goal.urn}: import_ names {object_id}, but the platform does not show that object",
            hint="check the id, and that the credentials belong to the owner of the object",
        )
    observed, read_inputs = read_result
    outputs = values.mark_secret_outputs(
        observed.outputs, goal.inputs, goal.additional_secret_outputs
    )
    goal.import_id = registration.import_id
    imported = replace(
        goal,
        id=observed.id,
        inputs=_overlay_outputs(goal, outputs) if read_inputs is None else read_inputs,
        outputs=outputs,
        init_errors=list(observed.init_errors),
    )
    diff = resource_diff.compare_with_goal(host, imported, goal)
    if diff.changes and diff.replaces:
        raise EngineError(
            f"{goal.urn}: the object {object_id} differs from its declaration in "
            f"{', '.join(diff.replaces)}, which would replace it",
            hint="declare the values that the object has",
        )
    if not diff.changes:
        imported.inputs = goal.inputs
    change = describe_change(host, Op.IMPORT, imported, imported)
    import_step = Step(Op.IMPORT, goal.urn, old, imported, change=change)
    if not diff.changes:
        return [import_step]
    update = describe_change(host, Op.UPDATE, imported, goal, diff)
    return [import_step, Step(Op.UPDATE, goal.urn, imported, goal, change=update)]


def _parse_import_id(registration: Registration) -> str:
    """Return the object id in `import_`, without the value of an input after the id."""
    kind = _find_lifecycle_class(registration)
    return parse_object_id(kind, registration.import_id) if kind else registration.import_id


def _find_lifecycle_class(registration: Registration) -> type[Lifecycle[Any, Any]] | None:
    """Return the lifecycle of the registered resource's kind, or None if not a gpuform resource."""
    platform, _, kind = get_own_type(registration.type).partition(":")
    return load_lifecycle_class(platform, kind) if kind else None


def _refuse_contradicting_input(registration: Registration, goal: ResourceState) -> None:
    """Raise GpuformError if `import_` names an input (after `@`) with another value than declared.

    An input that is still unknown passes.
    """
    kind = _find_lifecycle_class(registration)
    if kind is None:
        return
    named_inputs = parse_import_input(kind, registration.import_id)
    for name, value in named_inputs.items():
        declared = values.unwrap_secrets(goal.inputs.get(name))
        if declared is not values.UNKNOWN and declared != value:
            raise EngineError(
                f"{goal.urn}: import_ names the {name} {value}, but the program declares "
                "another one",
                hint="declare the value after the @, or leave it out",
            )


def _overlay_outputs(goal: ResourceState, outputs: values.PropertyMap) -> values.PropertyMap:
    """Return the declared inputs, overlaid with the object's outputs of equal name."""
    return {key: outputs.get(key, value) for key, value in goal.inputs.items()}
