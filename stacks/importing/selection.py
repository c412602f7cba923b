"""Select the objects to import: one by its id, or those of an account that match a filter.

`gpuform.stacks.operations.importing` calls this module with the options of `gpuform import`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from gpuform.providers import importing
from gpuform.providers.catalog import list_kinds, load_lifecycle_class
from gpuform.providers.errors import UnsupportedKind
from gpuform.providers.offering import ExistingObject
from gpuform.schemas.checking import find_nearest_name
from gpuform.schemas.errors import EngineError
from gpuform.schemas.topology import NAME_PATTERN, SECTIONS


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
        return (
            # A group and its parts would be the same hardware, declared twice.
            (type_ in self.types if self.types else not is_grouping_object(existing))
            and (
                not self.names or any(fnmatchcase(existing.name, pattern) for pattern in self.names)
            )
            and (not self.regions or existing.region in self.regions)
            and all(_has_tag(existing.tags or {}, tag) for tag in self.tags)
        )

    def reject_unmatched_options(self, existing_objects: Sequence[ExistingObject]) -> None:
        """Raise ImportRefused for the first option value without a matching object.

        The hint names the most similar existing value, where there is one.
        """
        tags = {tag for existing in existing_objects for tag in existing.tags or {}}
        for flag, values, known_values, matches in (
            (
                "--type",
                self.types,
                (),
                lambda existing, value: f"{existing.platform}:{existing.kind}" == value,
            ),
            (
                "--name",
                self.names,
                {existing.name for existing in existing_objects},
                lambda existing, value: fnmatchcase(existing.name, value),
            ),
            (
                "--region",
                self.regions,
                {existing.region for existing in existing_objects},
                lambda existing, value: existing.region == value,
            ),
            (
                "--tag",
                self.tags,
                tags,
                lambda existing, value: _has_tag(existing.tags or {}, value),
            ),
        ):
            for value in values:
                if not any(matches(existing, value) for existing in existing_objects):
                    nearest = find_nearest_name(value.partition("=")[0], tuple(known_values))
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
    listed_object = next(
        (
            existing
            for existing in existing_objects
            if (existing.kind, existing.id) == (kind, object_id)
        ),
        None,
    )
    listed_inputs = importing.merge_import_inputs(
        lifecycle, id_text, listed_object.listed_inputs if listed_object else {}
    )
    object_name, listed_region = "", ""
    if listed_object is not None:
        object_name, listed_region = listed_object.name, listed_object.region
    return ImportChoice(
        platform, kind, object_id, name, object_name, listed_region or region, listed_inputs
    )


def select_matching_objects(
    existing_objects: Sequence[ExistingObject], object_filter: ImportFilter
) -> list[ImportChoice]:
    """Return the choices of all matching objects, without resource names yet.

    Raises:
        ImportRefused: a value of the filter matches no object, or the platform reports no tags.
    """
    matching_objects = [
        existing for existing in existing_objects if object_filter.matches(existing)
    ]
    object_filter.reject_unmatched_options(existing_objects)
    return [
        ImportChoice(
            existing.platform,
            existing.kind,
            existing.id,
            "",
            existing.name,
            existing.region,
            existing.listed_inputs,
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
        nearest = find_nearest_name(f"{platform}:{kind}", known_types)
        hint = f"did you mean {nearest}?" if nearest else f"known types: {', '.join(known_types)}"
        raise ImportRefused(f"unknown type '{type_text}'", hint) from None
    return platform, kind


def _has_tag(tags: Mapping[str, str | None], tag_text: str) -> bool:
    """Return whether `tags` has the tag NAME, or NAME with this value for NAME=VALUE."""
    name, is_pair, value = tag_text.partition("=")
    return name in tags and (not is_pair or tags[name] == value)
