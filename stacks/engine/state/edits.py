"""Edit, check and repair a snapshot.

Each edit takes a snapshot and returns another, and touches no file.

They do what Pulumi's `state` commands do, which "pkg/resource/edit" and "pkg/cmd/pulumi/state" of
its source say.

Checked after loading and before each write, in one pass over the entries.

Entries are sorted, references to what is not there are dropped. What cannot be put right without
losing something stays, and is told.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import graph
from gpuform.stacks.engine.state.checkpoint import (
    Manifest,
    PendingOperation,
    ResourceState,
    Snapshot,
    magic_of,
)
from gpuform.stacks.engine.state.graph import (
    DroppedReference,
    rename_references,
    rename_used_resources,
    without,
)
from gpuform.stacks.engine.urn import (
    STACK_TYPE,
    in_stack,
    is_noise,
    is_provider,
    is_urn,
    type_of,
    under,
    with_name,
)


class EditRefused(EngineError):
    """An edit that would leave the state wrong, or lose what it must keep."""

    help_page = "guides/state-for-a-team"


def delete(
    snapshot: Snapshot, doomed: ResourceState, *, force: bool, target_dependents: bool
) -> tuple[Snapshot, list[ResourceState]]:
    """Without an entry, and without what depends on it if wanted; and what was taken out.

    The objects go on existing. Raises EditRefused for dependents that were not meant, and for
    protected entries without `force`.
    """
    entries = snapshot.resources
    twins = [e for e in entries if e.urn == doomed.urn and e is not doomed]
    dependents = [] if doomed.delete and twins else _dependents(entries, doomed)
    if dependents and not target_dependents:
        raise EditRefused(
            f"{doomed.urn} cannot be deleted: others depend on it" + _named(dependents),
            hint="delete those first, or all of them with --target-dependents",
        )
    gone = [doomed, *dependents]
    return _without(snapshot, gone, force=force), gone


def delete_all(snapshot: Snapshot, *, force: bool) -> tuple[Snapshot, list[ResourceState]]:
    """Without any entry; and what was taken out. Raises EditRefused for protected ones."""
    return _without(snapshot, snapshot.resources, force=force), list(snapshot.resources)


def _without(snapshot: Snapshot, gone: Collection[ResourceState], *, force: bool) -> Snapshot:
    protected = [entry for entry in gone if entry.protect]
    if protected and not force:
        raise EditRefused(
            "what is protected is not deleted:" + _named(protected),
            hint="`gpuform state unprotect` it first, or add --force",
        )
    places = {id(entry) for entry in gone}
    left = [entry for entry in snapshot.resources if id(entry) not in places]
    return replace(snapshot, resources=left)


def _dependents(entries: list[ResourceState], root: ResourceState) -> list[ResourceState]:
    """Whatever needs a resource, directly or not, old objects among them."""
    reached = {root.urn}
    found = []
    for entry in entries:  # what is needed comes first
        if entry.urn != root.urn and not reached.isdisjoint(graph.needs(entry)):
            reached.add(entry.urn)
            found.append(entry)
    return found


def set_protect(snapshot: Snapshot, urns: Collection[str], protect: bool) -> Snapshot:
    """Protects resources from deletion, or no longer; old objects stay as they are."""
    return _mapped(snapshot, urns, lambda entry: replace(entry, protect=protect))


def set_taint(snapshot: Snapshot, urns: Collection[str], taint: bool) -> Snapshot:
    """Has resources replaced by the next update, or no longer; old objects stay as they are."""
    return _mapped(snapshot, urns, lambda entry: replace(entry, taint=taint))


def _mapped(
    snapshot: Snapshot, urns: Collection[str], edit: Callable[[ResourceState], ResourceState]
) -> Snapshot:
    resources = [
        edit(entry) if entry.urn in urns and not entry.delete else entry
        for entry in snapshot.resources
    ]
    return replace(snapshot, resources=resources)


def own_resources(snapshot: Snapshot) -> list[str]:
    """The URNs of what the program declared: no providers, not the stack itself."""
    return [
        entry.urn for entry in snapshot.resources if not entry.delete and not is_noise(entry.type)
    ]


def rename(snapshot: Snapshot, old: str, name: str) -> tuple[Snapshot, str]:
    """A resource gets another name, in every reference; and its new URN.

    URNs of children stay: they hold the parent's type, not its name. Raises EditRefused.
    """
    entries = [entry for entry in snapshot.resources if entry.urn == old]
    if not name:
        raise EditRefused("a resource's name cannot be empty")
    _require_urns([old])
    new = with_name(old, name)
    if type_of(old) == STACK_TYPE:
        raise EditRefused(f"{old} is the stack itself", hint="use `gpuform stack rename`")
    if len(entries) > 1:
        raise EditRefused(
            f"{old} stands for {len(entries)} objects, some of which wait for deletion",
            hint="run `gpuform up` first, which deletes them",
        )
    if any(entry.urn == new for entry in snapshot.resources):
        raise EditRefused(f"there is a resource {new} already", hint="choose another name")
    return with_urns(snapshot, {old: new}), new


def rename_stack(snapshot: Snapshot, full_name: str) -> Snapshot:
    """Return the state as it is under another name: `organization/<project>/<stack>`.

    URNs among the properties change where they name a resource of this stack.
    """
    _, project, stack = full_name.split("/")
    entries = [*snapshot.resources, *(o.resource for o in snapshot.pending_operations)]
    names = {known for entry in entries for known in {entry.urn, *graph.needs(entry)}}
    names |= {entry.view_of for entry in entries if entry.view_of}
    _require_urns(names)
    renamed = {name: in_stack(name, stack, project) for name in names}

    def current(entry: ResourceState) -> ResourceState:
        return rename_used_resources(entry, lambda urn: renamed.get(urn, urn))

    return replace(_with_entries(with_urns(snapshot, renamed), current), stack=full_name)


def with_urns(snapshot: Snapshot, names: dict[str, str]) -> Snapshot:
    """The state with URNs changed, old -> new, wherever they stand."""
    return _with_entries(
        snapshot, lambda entry: rename_references(entry, lambda urn: names.get(urn, urn))
    )


def _with_entries(snapshot: Snapshot, change: Callable[[ResourceState], ResourceState]) -> Snapshot:
    """Return the state with `change` applied to each entry, also to those of pending operations."""
    return replace(
        snapshot,
        resources=[change(entry) for entry in snapshot.resources],
        pending_operations=[
            PendingOperation(change(operation.resource), operation.type)
            for operation in snapshot.pending_operations
        ],
    )


def _require_urns(names: Collection[str]) -> None:
    odd = sorted(name for name in names if not is_urn(name))
    if odd:
        raise EditRefused(
            f"{odd[0]!r} in the state is not a URN",
            hint="correct it: `gpuform stack export --file F`, edit F, "
            "`gpuform stack import --file F`",
        )


def _named(entries: Collection[ResourceState]) -> str:
    return "".join(f"\n  {entry.urn}" for entry in entries)


class IntegrityError(EngineError):
    """A snapshot that breaks rules; `violations` names each of them."""

    help_page = "guides/state-for-a-team"

    def __init__(self, violations: list[str]) -> None:
        super().__init__(
            "snapshot integrity failure; refusing to use it:\n  " + "\n  ".join(violations),
            hint="`gpuform state repair` puts right what can be; --from-backup brings back the "
            ".bak file or one of .pulumi/backups.",
        )
        self.violations = violations


def check(snapshot: Snapshot) -> None:
    """Raise IntegrityError when the snapshot breaks a rule."""
    violations = verify(snapshot)
    if violations:
        raise IntegrityError(violations)


def verify(snapshot: Snapshot) -> list[str]:
    """Every rule that the snapshot breaks, one sentence each; empty when it is sound."""
    found = []
    if snapshot.manifest.magic != magic_of(snapshot.manifest.version):
        found.append(f"the manifest's magic does not fit version {snapshot.manifest.version!r}")
    everywhere = {state.urn for state in snapshot.resources}
    earlier: set[str] = set()
    live: set[str] = set()
    providers: set[str] = set()
    for index, state in enumerate(snapshot.resources):
        found.extend(_own_violations(index, state))
        if is_provider(state.type):
            providers.add(f"{state.urn}::{state.id}")
        if state.provider and state.provider not in providers and not state.pending_replacement:
            found.append(f"{state.urn} refers to the unknown provider {state.provider}")
        for role, urn in _references(state):
            if urn not in earlier:
                fault = "comes after it" if urn in everywhere else "is missing"
                found.append(f"{state.urn}: its {role} {urn} {fault}")
        if not state.delete and state.urn in live:
            found.append(f"{state.urn} occurs twice and is not marked for deletion")
        if not state.delete:
            live.add(state.urn)
        earlier.add(state.urn)
    return found


def _own_violations(index: int, state: ResourceState) -> Iterator[str]:
    if not state.urn:
        yield f"entry {index} has no urn"
    if not state.type:
        yield f"{state.urn or f'entry {index}'} has no type"
    if state.id and not state.custom:
        yield f"{state.urn} is not custom but has an id"
    if state.custom and not state.id and not state.view_of:
        yield f"{state.urn} has no id: what it stands for would be forgotten and made again"
    if state.urn and not is_urn(state.urn):
        yield f"{state.urn} is no URN"
    elif state.urn and state.type and type_of(state.urn) != state.type:
        yield f"{state.urn} has the type {state.type}, which is not its URN's"


def _references(state: ResourceState) -> Iterator[tuple[str, str]]:
    if state.parent:
        yield "parent", state.parent
    for urn in state.dependencies:
        yield "dependency", urn
    for name, urns in state.property_dependencies.items():
        for urn in urns:
            yield f"dependency of property {name!r},", urn
    if state.deleted_with:
        yield "deletedWith", state.deleted_with
    for urn in state.replace_with:
        yield "replaceWith", urn


class NotRepairable(EngineError):
    """The state breaks a rule in a way that only a person can put right."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class Repair:
    """A state that keeps the rules, and a line for each thing that was done to it."""

    snapshot: Snapshot
    done: list[str]


def repair(snapshot: Snapshot) -> Repair:
    """Puts a state right; a sound one stays as it is.

    Raises NotRepairable, with all that is wrong still.
    """
    if not verify(snapshot):
        return Repair(snapshot, [])
    done = []
    if snapshot.manifest.magic != magic_of(snapshot.manifest.version):
        done.append("the manifest's magic is made anew")
    done += [f"{name}: placed behind what it needs" for name in _too_early(snapshot.resources)]
    ordered = _sorted(snapshot.resources)
    pruned = list(_pruned(ordered, done))
    repaired = replace(snapshot, resources=pruned, manifest=Manifest())
    violations = verify(repaired)
    if violations:
        raise NotRepairable(
            "the state cannot be repaired without losing something:\n  " + "\n  ".join(violations),
            hint="Bring back an earlier state with `gpuform state repair --from-backup`, or "
            "correct it: `gpuform stack export --file F`, edit F, `gpuform stack import --file F`.",
        )
    return Repair(repaired, done)


def _too_early(entries: Sequence[ResourceState]) -> Iterator[str]:
    first = {entry.urn: place for place, entry in reversed([*enumerate(entries)])}
    for place, entry in enumerate(entries):
        if any(first.get(name, 0) > place for name in graph.needs(entry)):
            yield entry.urn


def _sorted(entries: Sequence[ResourceState]) -> list[ResourceState]:
    """Everything behind what it needs, and otherwise in the order that it had."""
    news = {entry.urn: entry for entry in entries if not entry.delete}
    olds = {entry.urn: entry for entry in entries if entry.delete}

    def needed(entry: ResourceState) -> Iterator[ResourceState]:
        # Old objects were made when there were no new ones.
        first, second = (olds, news) if entry.delete else (news, olds)
        for name in sorted(graph.needs(entry)):
            found = first.get(name) or second.get(name)
            if found is not None and found is not entry:
                yield found

    done: dict[int, ResourceState] = {}
    for root in entries:
        path = [(root, needed(root))]
        on_path = {id(root)}
        while path:
            entry, others = path[-1]
            following = next((o for o in others if id(o) not in done), None)
            if following is None:
                done.setdefault(id(entry), entry)
                path.pop()
                on_path.discard(id(entry))
                continue
            if id(following) in on_path:
                raise _cycle([e for e, _ in path], following)
            on_path.add(id(following))
            path.append((following, needed(following)))
    return list(done.values())


def _cycle(path: Sequence[ResourceState], back: ResourceState) -> NotRepairable:
    start = next(place for place, entry in enumerate(path) if entry is back)
    names = [entry.urn for entry in path[start:]]
    return NotRepairable(
        "the state cannot be repaired: these need each other in a circle:\n  " + "\n  ".join(names),
        hint="Bring back an earlier state with `gpuform state repair --from-backup`.",
    )


def _pruned(entries: Sequence[ResourceState], done: list[str]) -> Iterator[ResourceState]:
    """The entries without references to what is not there; `done` tells of each.

    A resource whose parent is gone stands under the stack: its URN loses the parent's type, and so
    do those of its children.
    """
    seen: dict[str, str] = {}
    for entry in entries:
        freed, dropped = without(entry, lambda name: name not in seen)
        current = rename_references(freed, lambda name: seen.get(name, name))
        current.urn = _urn_under(entry, seen)
        if entry.parent and entry.parent not in seen:
            dropped.append(DroppedReference(entry.urn, "parent", entry.parent))
            current.parent = ""
        done += [f"dropped: {each.describe()}, {_why(each)}" for each in dropped]
        if current.urn != entry.urn:
            done.append(f"{entry.urn} becomes {current.urn}")
        seen[entry.urn] = current.urn
        yield current


def _why(dropped: DroppedReference) -> str:
    return "which is itself" if dropped.urn == dropped.entry else "which is not there"


def _urn_under(entry: ResourceState, seen: dict[str, str]) -> str:
    """The URN as it follows from the parent, where that is gone or has another."""
    if not entry.parent or seen.get(entry.parent) == entry.parent or not is_urn(entry.urn):
        return entry.urn
    return under(entry.urn, seen.get(entry.parent, ""))
