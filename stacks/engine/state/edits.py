"""Edits of a state by hand: each takes a snapshot and gives another, and touches no file.

They do what Pulumi's `state` commands do, which "pkg/resource/edit" and "pkg/cmd/pulumi/state" of
its source say.
"""

from collections.abc import Callable, Collection
from dataclasses import replace

from gpuform.stacks.engine import urn
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import graph
from gpuform.stacks.engine.state.checkpoint import PendingOperation, ResourceState, Snapshot
from gpuform.stacks.engine.state.graph import rename_references, rename_used_resources
from gpuform.stacks.engine.urn import STACK_TYPE, is_noise


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
    new = urn.with_name(old, name)
    if urn.type_of(old) == STACK_TYPE:
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
    renamed = {name: urn.in_stack(name, stack, project) for name in names}

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
    odd = sorted(name for name in names if not urn.is_urn(name))
    if odd:
        raise EditRefused(
            f"{odd[0]!r} in the state is not a URN",
            hint="correct it: `gpuform stack export --file F`, edit F, "
            "`gpuform stack import --file F`",
        )


def _named(entries: Collection[ResourceState]) -> str:
    return "".join(f"\n  {entry.urn}" for entry in entries)
