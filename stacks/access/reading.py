"""How people get on what a stack has: asked of the platforms now, else as the state tells it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from gpuform.providers.properties import plain
from gpuform.schemas.access import Access
from gpuform.stacks.access.errors import NoAccess
from gpuform.stacks.access.kubeconfig_text import Mark
from gpuform.stacks.engine.provider_host import to_provider
from gpuform.stacks.engine.stack import Stack, read_resources
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import Backend
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.lifecycles import lifecycle_of
from gpuform.stacks.review.names import short_type

_GONE: Final = "it is gone from the platform: `gpuform refresh` takes that over"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What one can get on: a resource, by its name in the stack, and the ways.

    `stale` says why the platform did not tell them now: then they are those of the state.
    """

    name: str
    mark: Mark
    access: Access
    stale: str = ""


def state_of(backend: Backend, project: str, stack: str) -> str:
    """Where a stack's state is, compressed or not: what tells stacks of one name apart."""
    return backend.where(project, stack).removesuffix(".gz")


def clusters_of(
    stack: Stack, config: Mapping[str, str], names: Sequence[str], *, offline: bool
) -> list[Cluster]:
    """Those named, by their names in the stack or on the platform; without names all of them.

    `config` is the stack's in plain text. `offline` asks no platform. One that is gone from its
    platform offers nothing. Raises EngineError for a name that no cluster has.
    """
    known = [
        (entry, access)
        for entry in stack.snapshot.resources
        if not (entry.delete or entry.pending_replacement)
        if (access := _access(entry, entry.outputs)) is not None
    ]
    chosen = [_chosen(stack, known, name) for name in names] if names else known
    entries = {entry.urn: entry for entry, _ in chosen}
    return list(_read(stack, config, list(entries.values()), offline=offline))


def _read(
    stack: Stack, config: Mapping[str, str], entries: Sequence[ResourceState], *, offline: bool
) -> Iterator[Cluster]:
    where = state_of(stack.backend, stack.project.name, stack.name)
    seen = [None] * len(entries) if offline else read_resources(stack, config, entries)
    for entry, now in zip(entries, seen, strict=True):
        stale = now.problem if now else ""
        outputs = now.outputs if now is not None and now.outputs is not None else entry.outputs
        access = _access(entry, outputs)
        if access is None:
            continue
        if now is not None and now.outputs is None and not stale:
            access = Access(name=access.name, no_kubeconfig=_GONE, no_hosts=_GONE)
        yield Cluster(name_of(entry.urn), Mark(entry.id, entry.urn, where), access, stale)


def _access(entry: ResourceState, outputs: PropertyMap) -> Access | None:
    lifecycle = lifecycle_of(entry.type)
    return lifecycle.access(plain(to_provider(outputs))) if lifecycle else None


def _chosen(
    stack: Stack, known: Sequence[tuple[ResourceState, Access]], name: str
) -> tuple[ResourceState, Access]:
    found = [each for each in known if name in (each[0].urn, name_of(each[0].urn))]
    found = found or [each for each in known if name == each[1].name]
    if len(found) == 1:
        return found[0]
    if found:
        urns = "\n".join(entry.urn for entry, _ in found)
        raise NoAccess(f"{name!r} is the name of {len(found)} clusters", hint=f"name one:\n{urns}")
    for entry in stack.snapshot.resources:
        if name in (entry.urn, name_of(entry.urn)) and entry.custom:
            raise NoAccess(
                f"{name} is a {short_type(entry.type)}, which nobody can get on",
                hint=_choices(known),
            )
    names = {each for entry, access in known for each in (name_of(entry.urn), access.name) if each}
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else _choices(known)
    raise NoAccess(f"stack '{stack.name}' has no cluster {name!r}", hint=hint)


def _choices(known: Sequence[tuple[ResourceState, Access]]) -> str:
    names = sorted(name_of(entry.urn) for entry, _ in known)
    return f"its clusters: {', '.join(names)}" if names else "it has no clusters yet: `gpuform up`"
