"""Select the objects to import, and find the objects that no stack of a backend owns.

`gpuform.stacks.operations.importing` calls this module with the options of `gpuform import`: one
object by its id, or those of an account that match a filter. `gpuform orphans` calls
`find_orphans`; `planning` uses the owners of objects.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from gpuform.providers import importing
from gpuform.providers.catalog import (
    ExistingObject,
    list_existing_objects,
    list_kinds,
    list_platforms_with_objects,
    load_lifecycle_class,
)
from gpuform.providers.context import get_run_context
from gpuform.providers.creating import Candidate, has_other_creation_time
from gpuform.providers.errors import GpuformError, MissingCredentials, UnsupportedKind
from gpuform.providers.operations import Settings
from gpuform.providers.records import Intent
from gpuform.schemas.checking import find_nearest_name, suggest_name
from gpuform.schemas.errors import EngineError
from gpuform.schemas.topology import NAME_PATTERN, SECTIONS
from gpuform.stacks.engine.records import read_all_intents
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import Backend, find_owners
from gpuform.stacks.resource_rules import find_lifecycle


class ImportRefused(EngineError):
    """An import that gpuform refuses before it changes anything."""

    help_page = "guides/adopt"


ObjectKey = tuple[str, str, str]
"""The platform, the kind and the platform's id of an object."""


@dataclass(frozen=True, slots=True)
class ImportChoice:
    """An object to import.

    `name` is the name for the resource; if empty, a name is derived from `object_name`, the
    object's name on the platform. `region` is the region to ask, empty for the configured one.
    `listed_inputs` are inputs from the platform's list or from the id on the command line, which
    reading the object does not return.
    """

    platform: str
    kind: str
    id: str
    name: str = ""
    object_name: str = ""
    region: str = ""
    listed_inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> ObjectKey:
        """Return the platform, kind and id, which together identify the object."""
        return self.platform, self.kind, self.id

    @property
    def section(self) -> str:
        """Return the section of a topology for objects of this kind."""
        return next(section for section, kind in SECTIONS.items() if kind == self.kind)

    def __str__(self) -> str:
        return f"{self.platform}:{self.kind} {self.id}"


@dataclass(frozen=True, slots=True)
class ImportFilter:
    """The objects of an account to import.

    Within an option one value has to match; all given options have to match. `types` are such as
    `together:Cluster`; `names` may be patterns with * and ?; `tags` are NAME or NAME=VALUE, and all
    tags have to match. Without `types`, objects that only group other objects are left out.
    """

    types: Sequence[str] = ()
    names: Sequence[str] = ()
    regions: Sequence[str] = ()
    tags: Sequence[str] = ()

    def matches(self, existing: ExistingObject) -> bool:
        """Return whether the filter selects an object.

        Raises:
            ImportRefused: the filter has tags, and the platform does not report this object's tags.
        """
        if self.tags and existing.tags is None:
            raise ImportRefused(
                f"{existing.platform} does not report the tags of a {existing.kind}",
                hint="omit --tag, and filter by --name or --region",
            )
        type_ = f"{existing.platform}:{existing.kind}"
        # A group and its parts would be the same hardware, declared twice.
        has_type = type_ in self.types if self.types else not is_grouping_object(existing)
        return (
            has_type
            and any(fnmatchcase(existing.name, pattern) for pattern in self.names or "*")
            and (not self.regions or existing.region in self.regions)
            and all(_has_tag(existing.tags or {}, tag) for tag in self.tags)
        )

    def reject_unmatched_options(self, existing_objects: Sequence[ExistingObject]) -> None:
        """Raise ImportRefused for the first option value without a matching object.

        The hint names the most similar existing value, where there is one.
        """
        names = {existing.name for existing in existing_objects}
        regions = {existing.region for existing in existing_objects}
        tags = {tag for existing in existing_objects for tag in existing.tags or {}}
        for flag, values, known_values, matches in (
            ("--type", self.types, (), lambda item, value: f"{item.platform}:{item.kind}" == value),
            ("--name", self.names, names, lambda item, value: fnmatchcase(item.name, value)),
            ("--region", self.regions, regions, lambda item, value: item.region == value),
            ("--tag", self.tags, tags, lambda item, value: _has_tag(item.tags or {}, value)),
        ):
            for value in values:
                if not any(matches(existing, value) for existing in existing_objects):
                    nearest = find_nearest_name(value.partition("=")[0], known_values)
                    # The nearest name is the value itself where only the tag's value differs.
                    is_other_name = bool(nearest) and nearest != value
                    hint = f"did you mean {nearest}?" if is_other_name else _LIST_ALL_HINT
                    raise ImportRefused(f"{flag} {value} matches no object of the account", hint)


_LIST_ALL_HINT: Final = (
    "run the command without this flag and with --preview-only to list all objects"
)


def is_grouping_object(existing: ExistingObject) -> bool:
    """Return whether an object only groups parts, which can be imported themselves."""
    lifecycle = load_lifecycle_class(existing.platform, existing.kind)
    return bool(existing.part_ids) and not lifecycle.is_bound


def select_object(
    type_text: str,
    name: str,
    id_text: str,
    existing_objects: Iterable[ExistingObject],
    region: str = "",
) -> ImportChoice:
    """Return the choice of one object by type and id, to be imported under `name`.

    `id_text` is the id from the command line, possibly with an input as ID@VALUE.
    `existing_objects` are the account's: if the object is not among them, the choice has no object
    name, and `region` is where to ask.

    Raises:
        ImportRefused: the type is unknown, or the name is not valid.
        EngineError: the value behind the id contradicts the platform.
    """
    platform, kind = parse_type(type_text)
    if not re.fullmatch(NAME_PATTERN, name):
        raise ImportRefused(
            f"{name!r} is not a valid resource name",
            hint="use letters, digits, hyphens, underscores and dots: import TYPE NAME ID",
        )
    lifecycle = load_lifecycle_class(platform, kind)
    # The command line may give an input with the id, as ID@VALUE, where no platform reports it.
    object_id = importing.parse_object_id(lifecycle, id_text)
    same_objects = (
        existing
        for existing in existing_objects
        if (existing.kind, existing.id) == (kind, object_id)
    )
    listed, object_name = next(same_objects, None), ""
    if listed is not None:
        object_name, region = listed.name, listed.region or region
    listed_inputs = importing.merge_import_inputs(
        lifecycle, id_text, listed.listed_inputs if listed else {}
    )
    return ImportChoice(platform, kind, object_id, name, object_name, region, listed_inputs)


def select_matching_objects(
    existing_objects: Sequence[ExistingObject], object_filter: ImportFilter
) -> list[ImportChoice]:
    """Return the choices of all matching objects, without resource names yet.

    Raises:
        ImportRefused: a value of the filter matches no object, or the platform reports no tags.
    """
    matching_objects = list(filter(object_filter.matches, existing_objects))
    object_filter.reject_unmatched_options(existing_objects)
    return [
        ImportChoice(
            *_get_key(existing),
            object_name=existing.name,
            region=existing.region,
            listed_inputs=existing.listed_inputs,
        )
        for existing in matching_objects
    ]


def parse_type(type_text: str) -> tuple[str, str]:
    """Return the platform and the kind of `together:Cluster`, or of a complete type token.

    Raises:
        ImportRefused: no platform has this type.
    """
    # A complete token has the short type behind `gpuform.` (dynamic form) or `gpuform:` (plugin).
    platform, _, kind = type_text.rpartition("gpuform.")[2].removeprefix("gpuform:").partition(":")
    try:
        load_lifecycle_class(platform, kind)
    except UnsupportedKind:
        known_types = tuple(f"{known_platform}:{kind}" for known_platform, kind in list_kinds())
        listed = f"known types: {', '.join(known_types)}"
        hint = suggest_name(f"{platform}:{kind}", known_types, listed)
        raise ImportRefused(f"unknown type '{type_text}'", hint) from None
    return platform, kind


def _has_tag(tags: Mapping[str, str | None], tag_text: str) -> bool:
    """Return whether `tags` has the tag NAME, or NAME with this value for NAME=VALUE."""
    name, is_pair, value = tag_text.partition("=")
    return name in tags and (not is_pair or tags[name] == value)


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

    `unresolved_intents` are creates of stacks of the backend whose outcome is unknown. A refused
    create is one of them if one of `objects` has its name and may be its object.
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
    now = get_run_context().clock.now()
    unowned = [existing for existing in existing_objects if _get_key(existing) not in owned_keys]
    for existing in _list_still_existing(unowned, search):
        # The clocks of platform and machine may differ: an age is never negative.
        age_s = None if existing.created_at is None else max(0.0, now - existing.created_at)
        if age_s is None or age_s >= search.min_age_s:
            report.objects.append(Orphan(existing, age_s, made_by.get(existing.id)))
    # States own all objects of a resolved create, and at least one.
    report.unresolved_intents = [
        intent
        for intent in intents
        if not (intent.made and set(intent.made) <= owned_ids)
        and (not intent.is_refused or _has_possible_object(intent, report.objects))
    ]
    return report


def _has_possible_object(intent: Intent, orphans: Sequence[Orphan]) -> bool:
    """Return True if a refused create may have made one of the orphans."""
    names = intent.names or (intent.name,)
    return any(
        (existing.platform, existing.kind) == (intent.platform, intent.kind)
        and existing.name in names
        and existing.id not in intent.present_ids
        and not has_other_creation_time(Candidate(existing.id, existing.created_at), intent)
        for existing in (orphan.existing_object for orphan in orphans)
    )


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
    listed_keys: set[ObjectKey] = set()
    for platform in {existing.platform for existing in existing_objects}:
        try:
            listed_objects = list_existing_objects(platform, search.settings, search.regions)
        except GpuformError:
            keys = map(_get_key, existing_objects)
            listed_keys |= {key for key in keys if key[0] == platform}
        else:
            listed_keys |= set(map(_get_key, listed_objects))
    return [existing for existing in existing_objects if _get_key(existing) in listed_keys]


def _get_key(existing: ExistingObject) -> ObjectKey:
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


def _read_owned_keys(backend: Backend, report: OrphanReport) -> set[ObjectKey]:
    """Return the keys of all objects in the backend's states.

    States that cannot be read are added to the failures of `report`.
    """
    owners = find_owners(backend)
    report.failures += [error.message for error in owners.unreadable]
    return set(map_owners(owners.resources))
