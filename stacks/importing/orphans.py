"""Find what the platforms hold and no stack of a backend owns, and creates that were never
recovered.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from gpuform.providers.catalog import load_lifecycle_class, require_platform
from gpuform.providers.context import get_clock
from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.providers.offering import ExistingObject, list_existing_objects
from gpuform.providers.operations import Settings
from gpuform.providers.platform import platforms
from gpuform.providers.records import Intent
from gpuform.stacks.engine.records import read_all_intents
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import Backend, find_owners
from gpuform.stacks.importing.chosen import Key
from gpuform.stacks.resource_rules import lifecycle_of


@dataclass(frozen=True, slots=True)
class Owner:
    """The resource that stands for an object, and the full name of its stack."""

    stack: str
    urn: str


def owners_of(resources: Iterable[tuple[str, ResourceState]]) -> dict[Key, Owner]:
    """The owners of all objects, and of what these are made of; `resources` with their stacks."""
    return {key: Owner(stack, each.urn) for stack, each in resources for key in objects_of(each)}


def objects_of(resource: ResourceState) -> Iterator[Key]:
    """The objects that a resource of gpuform's stands for."""
    lifecycle = lifecycle_of(resource.type)
    if lifecycle is None or not resource.id or resource.external:
        return
    yield lifecycle.platform, lifecycle.kind, resource.id
    parts = resource.outputs.get(lifecycle.parts_field) if lifecycle.parts_field else None
    for id_ in parts if isinstance(parts, list) else ():
        yield lifecycle.platform, lifecycle.parts_kind, str(id_)


@dataclass(frozen=True, slots=True)
class Orphan:
    """An object without an owner. `age` is in seconds, None where the platform does not tell.

    `intent` is the create that made it, where a record names it.
    """

    held: ExistingObject
    age: float | None = None
    intent: Intent | None = None


@dataclass(slots=True)
class Orphans:
    """What was found, and how far that can be relied on.

    `unsettled` are creates of these stacks whose outcome is not known; `asked` the platforms that
    answered, `not_asked` those without credentials, with the reason. With `failures` the rest is
    not all that there is.
    """

    objects: list[Orphan] = field(default_factory=list)
    unsettled: list[Intent] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    not_asked: dict[str, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Question:
    """Where to look: no `platforms` are all that there are credentials for.

    Objects younger than `older_than` seconds are left out, those of unknown age are not. No answer
    may say one of the `secrets`.
    """

    backend: Backend
    settings: Settings
    platforms: Sequence[str] = ()
    regions: Sequence[str] = ()
    older_than: float = 0.0
    secrets: Sequence[str] = field(default=(), repr=False)


def find(question: Question) -> Orphans:
    """Asks the platforms for their lists, and reads every state. Changes nothing."""
    found = Orphans()
    # The lists come first: what a run makes meanwhile is in its state by the time that is read.
    held = [each for platform in _platforms(question) for each in _held(platform, question, found)]
    owned = _owned(question.backend, found)
    platforms = _platforms(question)
    intents = [each for each in read_all_intents(question.backend) if each.platform in platforms]
    made_by = {id_: each for each in intents for id_ in (each.id, *each.ids) if id_}
    owned_ids = {id_ for _, _, id_ in owned}
    found.unsettled = [each for each in intents if not _is_settled(each, owned_ids)]
    now = get_clock(os.environ).now()
    for each in _still_held([each for each in held if _key(each) not in owned], question):
        age = None if each.created_at is None else max(0.0, now - each.created_at)
        if age is None or age >= question.older_than:
            found.objects.append(Orphan(each, age, made_by.get(each.id)))
    return found


def _platforms(question: Question) -> list[str]:
    """Those that can hold anything."""

    def holds(platform: str) -> bool:
        kinds = require_platform(platform).lifecycles
        return any(not load_lifecycle_class(platform, kind).is_bound for kind in kinds)

    return [*question.platforms] or [each for each in platforms() if holds(each)]


def _still_held(held: Sequence[ExistingObject], question: Question) -> list[ExistingObject]:
    """What a run deletes meanwhile has left its state: such objects are gone at a second look."""
    again: set[tuple[str, str, str]] = set()
    for platform in {each.platform for each in held}:
        try:
            seen = list_existing_objects(platform, question.settings, question.regions)
        except GpuformError:
            again |= {_key(each) for each in held if each.platform == platform}
        else:
            again |= set(map(_key, seen))
    return [each for each in held if _key(each) in again]


def _key(held: ExistingObject) -> tuple[str, str, str]:
    return held.platform, held.kind, held.id


def _held(platform: str, question: Question, found: Orphans) -> list[ExistingObject]:
    try:
        held = list_existing_objects(platform, question.settings, question.regions)
    except MissingCredentials as error:
        if question.platforms:
            found.failures.append(f"{platform} could not be asked: {error}")
        else:
            found.not_asked[platform] = error.message
        return []
    except GpuformError as error:
        found.failures.append(f"{platform} could not be asked: {error}")
        return []
    found.asked.append(platform)
    return [each for each in held if not each.part_ids]


def _owned(backend: Backend, found: Orphans) -> set[tuple[str, str, str]]:
    everybody = find_owners(backend)
    found.failures += [each.message for each in everybody.unreadable]
    return set(owners_of(everybody.resources))


def _is_settled(intent: Intent, owned_ids: set[str]) -> bool:
    """Whether a state has what it made."""
    return bool(intent.made) and set(intent.made) <= owned_ids
