"""Find the objects of the platforms that no stack of a backend owns, and unresolved creates.

`gpuform orphans` calls `find_orphans`; `planning` uses the owners of objects.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gpuform.providers.context import get_run_context
from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.providers.offering import (
    ExistingObject,
    list_existing_objects,
    list_platforms_with_objects,
)
from gpuform.providers.operations import Settings
from gpuform.providers.records import Intent
from gpuform.stacks.engine.records import read_all_intents
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import Backend, find_owners
from gpuform.stacks.importing.selection import ObjectKey
from gpuform.stacks.resource_rules import find_lifecycle


@dataclass(frozen=True, slots=True)
class Owner:
    """The resource that manages an object, and the full name of its stack."""

    stack: str
    urn: str


def map_owners(resources: Iterable[tuple[str, ResourceState]]) -> dict[ObjectKey, Owner]:
    """Return the owners by object, also of the parts of objects.

    `resources` are pairs with the stack.
    """
    return {
        key: Owner(stack, resource.urn)
        for stack, resource in resources
        for key in list_managed_objects(resource)
    }


def list_managed_objects(resource: ResourceState) -> Iterator[ObjectKey]:
    """Yield the keys of a resource's object and of the object's parts.

    Nothing for resources of other providers, resources without an id, and external resources.
    """
    lifecycle = find_lifecycle(resource.type)
    # An external resource only reads an object: it does not own the object.
    if lifecycle is None or not resource.id or resource.external:
        return
    yield lifecycle.platform, lifecycle.kind, resource.id
    # The nodes of a pool are objects of their own kind in the platform's list.
    parts = resource.outputs.get(lifecycle.parts_field) if lifecycle.parts_field else None
    for part_id in parts if isinstance(parts, list) else ():
        yield lifecycle.platform, lifecycle.parts_kind, str(part_id)


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object without an owner.

    `age_s` is None if the platform does not report it. `intent` is the record of the create that
    made the object, or None.
    """

    existing_object: ExistingObject
    age_s: float | None = None
    intent: Intent | None = None


@dataclass(slots=True)
class OrphanReport:
    """The orphans, and how far the list is complete.

    `unresolved_intents` are creates of stacks of the backend whose outcome is unknown.
    `unasked_platforms` are those without credentials, with the reason. With `failures` the report
    is incomplete.
    """

    objects: list[Orphan] = field(default_factory=list)
    unresolved_intents: list[Intent] = field(default_factory=list)
    asked_platforms: list[str] = field(default_factory=list)
    unasked_platforms: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OrphanSearch:
    """Where and what to search.

    Without `platforms` all platforms with credentials are asked. Objects younger than `min_age_s`
    seconds are left out; objects of unknown age are not. `secrets` are values that no report may
    show.
    """

    backend: Backend
    settings: Settings
    platforms: Sequence[str] = ()
    regions: Sequence[str] = ()
    min_age_s: float = 0.0
    secrets: Sequence[str] = field(default=(), repr=False)


def find_orphans(search: OrphanSearch) -> OrphanReport:
    """Compare the platforms' objects with the states of all stacks, and change nothing.

    Only objects of the minimum age, or of unknown age, are reported, and creates whose end is
    unknown. A platform or a state that cannot be read is reported in `failures`, not raised; a
    platform without credentials that nobody named is in `unasked_platforms`.
    """
    report = OrphanReport()
    # The lists come first: what a run makes meanwhile is in its state by the time that is read.
    existing_objects = [
        existing
        for platform in _list_platforms(search)
        for existing in _list_objects(platform, search, report)
    ]
    owned_keys = _read_owned_keys(search.backend, report)
    platforms = _list_platforms(search)
    intents = [
        intent for intent in read_all_intents(search.backend) if intent.platform in platforms
    ]
    made_by = {id_: intent for intent in intents for id_ in (intent.id, *intent.ids) if id_}
    owned_ids = {id_ for _, _, id_ in owned_keys}
    report.unresolved_intents = [
        intent for intent in intents if not _is_resolved(intent, owned_ids)
    ]
    now = get_run_context().clock.now()
    for existing in _list_still_existing(
        [existing for existing in existing_objects if _get_key(existing) not in owned_keys], search
    ):
        # The clocks of platform and machine may differ: an age is never negative.
        age_s = None if existing.created_at is None else max(0.0, now - existing.created_at)
        if age_s is None or age_s >= search.min_age_s:
            report.objects.append(Orphan(existing, age_s, made_by.get(existing.id)))
    return report


def _list_platforms(search: OrphanSearch) -> list[str]:
    """Return the platforms that the search names, or all platforms if it names none."""
    return [*search.platforms] or list_platforms_with_objects()


def _list_still_existing(
    existing_objects: Sequence[ExistingObject], search: OrphanSearch
) -> list[ExistingObject]:
    """List the platforms' objects again, and return the objects that are still listed.

    A run may have deleted an object and its state's resource between the first list and the reading
    of the state. If the second list fails, the objects of its platform stay.
    """
    listed_keys: set[tuple[str, str, str]] = set()
    for platform in {existing.platform for existing in existing_objects}:
        try:
            listed_objects = list_existing_objects(platform, search.settings, search.regions)
        except GpuformError:
            listed_keys |= {
                _get_key(existing) for existing in existing_objects if existing.platform == platform
            }
        else:
            listed_keys |= set(map(_get_key, listed_objects))
    return [existing for existing in existing_objects if _get_key(existing) in listed_keys]


def _get_key(existing: ExistingObject) -> tuple[str, str, str]:
    """Return the platform, kind and id, which together identify an object."""
    return existing.platform, existing.kind, existing.id


def _list_objects(
    platform: str, search: OrphanSearch, report: OrphanReport
) -> list[ExistingObject]:
    """Return the platform's objects without groups, or none and a reason in `report`.

    Missing credentials are a failure only for a platform that the user named.
    """
    try:
        existing_objects = list_existing_objects(platform, search.settings, search.regions)
    except MissingCredentials as error:
        # Only platforms that the user named must answer.
        if search.platforms:
            report.failures.append(f"{platform}: cannot list the objects: {error}")
        else:
            report.unasked_platforms[platform] = error.message
        return []
    except GpuformError as error:
        report.failures.append(f"{platform}: cannot list the objects: {error}")
        return []
    report.asked_platforms.append(platform)
    # A group is not an object of its own: its parts are listed as well.
    return [existing for existing in existing_objects if not existing.part_ids]


def _read_owned_keys(backend: Backend, report: OrphanReport) -> set[tuple[str, str, str]]:
    """Return the keys of all objects in the backend's states.

    States that cannot be read are added to the failures of `report`.
    """
    owners = find_owners(backend)
    report.failures += [error.message for error in owners.unreadable]
    return set(map_owners(owners.resources))


def _is_resolved(intent: Intent, owned_ids: set[str]) -> bool:
    """Return whether states own all objects of a create, and at least one."""
    return bool(intent.made) and set(intent.made) <= owned_ids
