"""Match declarations to what exists: entries of the old state, objects to import, dependents.

The step generator matches every registration to an entry (`OldEntries`). For the `import_` option
the provider reads the object; where the declaration differs, an update in the same run changes the
object after the plan has shown it, and a declaration that would replace the object is refused.
Before a replacement that deletes the old object first, `DependentReplacements` finds Pulumi's
dependent replacements: the provider host compares dependents with their changed inputs.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuform.providers import values
from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.importing import parse_import_input, parse_object_id
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.values import UNKNOWN
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.planning.constraints import check_inputs
from gpuform.stacks.engine.planning.events import describe_change
from gpuform.stacks.engine.planning.steps import Op, Step, compare_with_goal
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.registration import Alias, Read, Registration, UrnParts, list_alias_urns
from gpuform.stacks.engine.state import ResourceState, graph
from gpuform.stacks.engine.store import OtherStacks, Owners
from gpuform.stacks.engine.urn import get_own_type, is_own, is_provider


@dataclass(slots=True)
class OldEntries:
    """The live entries that the last run left, matched to the declarations of this run.

    `positions` maps the URN of each live entry to its index in the old state. `declared` maps URNs
    to the registrations and reads of this run, `new_urns` maps the old URN of each entry that an
    alias matched to its new URN.
    """

    stack: str
    project: str
    entries: dict[str, ResourceState]
    positions: dict[str, int]
    declared: dict[str, Registration | Read] = field(default_factory=dict)
    new_urns: dict[str, str] = field(default_factory=dict)
    _used_aliases: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_state(cls, stack: str, project: str, base: Iterable[ResourceState]) -> "OldEntries":
        """Return the live entries of the state `base`: those not marked for deletion.

        `stack` and `project` are the names of the stack and its project, for the URNs of aliases.
        """
        # An entry with `delete: true` has its replacement already and is never an old state.
        live = [(position, entry) for position, entry in enumerate(base) if not entry.delete]
        return cls(
            stack,
            project,
            {entry.urn: entry for _, entry in live},
            {entry.urn: position for position, entry in live},
        )

    def match_entry(self, declaration: Registration | Read) -> ResourceState | None:
        """Return the old entry of a declared resource, or None for a new resource.

        Records the declaration: call once for each. An entry of another URN is found by an alias.

        Raises:
            EngineError: another resource of this run has the same URN or matched the same entry.
        """
        earlier = self.declared.get(declaration.urn)
        if earlier is not None:
            raise EngineError(
                f"two resources have the URN {declaration.urn}: one from {earlier.place}, one from "
                f"{declaration.place}",
                hint="give one of them another name",
            )
        self.declared[declaration.urn] = declaration
        owner_urn = self.new_urns.get(declaration.urn)
        if owner_urn is not None:
            raise EngineError(
                f"{declaration.urn} is declared at {declaration.place}, but it is already an "
                f"alias of {owner_urn}",
                hint="remove the alias, or give the new resource another name",
            )
        # Pulumi's order: the entry of the own URN, else the first alias that has an entry.
        for urn in (declaration.urn, *self._list_alias_urns(declaration)):
            if urn in self.entries:
                if urn != declaration.urn:
                    self._record_alias(urn, declaration)
                return self.entries[urn]
        return None

    def keep_old_urn(self, old: ResourceState, declaration: Registration | Read) -> None:
        """Undo the renaming of `old` by an alias, because no step touches the entry.

        The old URN then counts as declared by `declaration`. Without a renaming nothing changes.
        """
        if self.new_urns.pop(old.urn, None) is not None:
            self.declared[old.urn] = declaration

    def _list_alias_urns(self, declaration: Registration | Read) -> Sequence[str]:
        """List the old URNs under which the declared resource may be in the state, best first."""
        urn_parts = UrnParts(
            self.stack, self.project, declaration.parent, declaration.type, declaration.name
        )
        aliases: Sequence[Alias] = (
            declaration.aliases if isinstance(declaration, Registration) else ()
        )
        return list_alias_urns(urn_parts, aliases, self._used_aliases)

    def _record_alias(self, alias: str, declaration: Registration | Read) -> None:
        """Record that the declaration renames the entry with the URN `alias`.

        Raises EngineError if another declaration uses the alias.
        """
        owner_urn = alias if alias in self.declared else self.new_urns.get(alias)
        if owner_urn is not None:
            raise EngineError(
                f"{declaration.urn} has the alias {alias}, which {owner_urn} in this program "
                "uses already",
                hint="remove the alias, or that other resource",
            )
        self.new_urns[alias] = declaration.urn
        self._used_aliases[declaration.urn] = alias


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
        """Read the owners of all existing objects, once, to detect an object of another stack.

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
        """Return the keys of the object's parts; none for a type of another package."""
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
        inputs={key: outputs.get(key, value) for key, value in goal.inputs.items()}
        if read_inputs is None
        else read_inputs,
        outputs=outputs,
        init_errors=list(observed.init_errors),
    )
    diff = compare_with_goal(host, imported, goal)
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


@dataclass(frozen=True, slots=True)
class DependentReplacement:
    """A dependent that must be replaced too, and its properties that require the replacement.

    `position` is the index of the dependent's entry in the old state.
    """

    resource: ResourceState
    position: int
    keys: Sequence[str] = ()


@dataclass(slots=True)
class DependentReplacements:
    """Finds dependents among the entries that the last run left, in their order."""

    base: Sequence[ResourceState]
    host: ProviderHost
    _user_positions: dict[str, list[int]] = field(default_factory=dict)

    def find_dependents(
        self, root: ResourceState, spared: Collection[str]
    ) -> list[DependentReplacement]:
        """Return the dependents to replace together with `root`, in the order of the state.

        Entries in `spared` are left out: this run has already planned them, so that they do not
        depend on `root` any more. A dependent is replaced when it is `deleted_with` a replaced
        resource, when its `replace_with` names `root`, or when its provider requires a replacement
        for a property that comes from a replaced resource. Entries that wait for their deletion are
        included, unless they are protected; external objects and providers are not.
        """
        return self._find_replaced(root, spared)[0]

    def find_incomparable_roots(
        self, roots: Iterable[ResourceState], spared: Collection[str]
    ) -> Iterator[tuple[str, EngineError]]:
        """Yield URN and error of each root with a dependent the provider cannot compare.

        Asks the providers which dependents would be replaced together with each root; dependents in
        `spared` are left out. If each replaced resource depends on only one other, the answer for a
        root also covers the roots among its dependents, and no provider is asked again.
        """
        compared_urns: set[str] = set()
        for root in roots:
            if root.urn in compared_urns:
                continue
            try:
                compared_urns |= self._find_replaced(root, spared)[1]
            except EngineError as error:
                yield root.urn, error

    def _find_replaced(
        self, root: ResourceState, spared: Collection[str]
    ) -> tuple[list[DependentReplacement], set[str]]:
        """Return the dependents of `root` to replace, and all replaced URNs if these form a tree.

        In a tree each visited entry depends on one replaced resource only; otherwise the set is
        empty.
        """
        if not self._user_positions:
            self._user_positions = graph.index_dependents(self.base)
        replaced = {root.urn}
        dependents: list[DependentReplacement] = []
        # Pulumi's calculateDependentReplacements walks all entries after the root in the order of
        # the state. The heap keeps this order, and visits only users of a replaced resource.
        waiting_positions = [*self._user_positions.get(root.urn, ())]
        visited_positions = set(waiting_positions)
        while waiting_positions:
            position = heapq.heappop(waiting_positions)
            dependent = self.base[position]
            if dependent.urn == root.urn or dependent.urn in spared:
                continue
            if not _can_be_replaced(dependent):
                continue
            keys = self._find_replacing_keys(dependent, replaced)
            if keys is not None:
                replaced.add(dependent.urn)
                dependents.append(DependentReplacement(dependent, position, keys))
                for user in self._user_positions.get(dependent.urn, ()):
                    if user > position and user not in visited_positions:
                        visited_positions.add(user)
                        heapq.heappush(waiting_positions, user)
            elif root.urn in dependent.replace_with and not dependent.delete:
                dependents.append(DependentReplacement(dependent, position, ["replace_with"]))
        visited_entries = (self.base[position] for position in visited_positions)
        is_tree = all(
            len(graph.find_dependency_urns(entry) & replaced) == 1 for entry in visited_entries
        )
        return dependents, replaced if is_tree else set()

    def _find_replacing_keys(
        self, dependent: ResourceState, replaced: set[str]
    ) -> Sequence[str] | None:
        """Return the properties forcing a replacement of `dependent`, or None if there is none.

        Its provider is asked about the properties that come from a replaced resource.
        `deleted_with` counts as a property; `depends_on` alone forces nothing, and a component is
        never replaced.
        """
        if not dependent.custom:
            return None
        if dependent.deleted_with in replaced:
            return ["deleted_with"]
        affected_keys = [
            key
            for key, urns in dependent.property_dependencies.items()
            if key in dependent.inputs and not replaced.isdisjoint(urns)
        ]
        # A dependency by `depends_on` alone replaces nothing, as in Pulumi.
        if not affected_keys:
            return None
        # The comparison that Pulumi's engine makes: old inputs, with the properties that come from
        # a replaced resource unknown.
        goal = replace(
            dependent, inputs={**dependent.inputs, **dict.fromkeys(affected_keys, UNKNOWN)}
        )
        # Old init errors have nothing to do with the root: `#initerror` must not match here.
        diff = compare_with_goal(self.host, replace(dependent, init_errors=[]), goal)
        return diff.replaces or None


def _can_be_replaced(dependent: ResourceState) -> bool:
    """Return False for external objects, providers, and protected entries marked for deletion."""
    # Nobody can create again an object that is only read, and a provider resource has no object.
    if dependent.external or is_provider(dependent.type):
        return False
    return not (dependent.delete and dependent.protect)
