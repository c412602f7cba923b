"""Choose the objects to import: one by its id, or what an account holds."""

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
from gpuform.schemas.topology import NAME_PATTERN, SECTIONS
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.records import raise_as_engine_errors


class NotImported(EngineError):
    """An object that is not imported; nothing was changed."""

    help_page = "guides/adopt"


Key = tuple[str, str, str]
"""The platform, the kind and the id of an object."""


@dataclass(frozen=True, slots=True)
class ImportChoice:
    """An object to import.

    `name` is the resource's, empty where it is to be made from `called`, the object's own;
    `region` is where to ask; `told` has inputs that reading the object does not tell.
    """

    platform: str
    kind: str
    id: str
    name: str = ""
    called: str = ""
    region: str = ""
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        return self.platform, self.kind, self.id

    @property
    def section(self) -> str:
        return next(section for section, kind in SECTIONS.items() if kind == self.kind)

    def __str__(self) -> str:
        return f"{self.platform}:{self.kind} {self.id}"


@dataclass(frozen=True, slots=True)
class Filter:
    """What to take of an account: what fits one of each that is given.

    `types` such as together:Cluster; `names` may be patterns with * and ?; `tags` are NAME or
    NAME=VALUE, and all of them have to fit.
    """

    types: Sequence[str] = ()
    names: Sequence[str] = ()
    regions: Sequence[str] = ()
    tags: Sequence[str] = ()

    def takes(self, held: ExistingObject) -> bool:
        """Raises EngineError for tags where the platform shows none."""
        if self.tags and held.tags is None:
            raise NotImported(
                f"{held.platform} does not tell the tags of a {held.kind}",
                hint="leave --tag out, and choose by --name or --region",
            )
        type_ = f"{held.platform}:{held.kind}"
        return (
            (type_ in self.types if self.types else not is_grouping(held))
            and (not self.names or any(fnmatchcase(held.name, each) for each in self.names))
            and (not self.regions or held.region in self.regions)
            and all(_has(held.tags or {}, tag) for tag in self.tags)
        )

    def refuse_what_fits_nothing(self, held: Sequence[ExistingObject]) -> None:
        """Raises EngineError for something given that no object has, with the nearest one."""
        tags = {tag for each in held for tag in each.tags or {}}
        for flag, given, known, fits in (
            ("--type", self.types, (), lambda each, text: f"{each.platform}:{each.kind}" == text),
            (
                "--name",
                self.names,
                {e.name for e in held},
                lambda e, text: fnmatchcase(e.name, text),
            ),
            ("--region", self.regions, {e.region for e in held}, lambda e, text: e.region == text),
            ("--tag", self.tags, tags, lambda e, text: _has(e.tags or {}, text)),
        ):
            for text in given:
                if not any(fits(each, text) for each in held):
                    near = find_nearest_name(text.partition("=")[0], tuple(known))
                    meant = f"did you mean {near}?" if near and near != text else _LOOK
                    raise NotImported(f"{flag} {text} fits nothing that the account holds", meant)


_LOOK: Final = "the command without it and with --preview-only shows all that there is"


def is_grouping(held: ExistingObject) -> bool:
    """Whether it is one way of several to group its parts."""
    lifecycle = load_lifecycle_class(held.platform, held.kind)
    return bool(held.part_ids) and not lifecycle.is_bound


def one(
    type_: str, name: str, id_: str, held: Iterable[ExistingObject], region: str = ""
) -> ImportChoice:
    """The object of an id. Raises EngineError for a type that there is not, and for a bad name."""
    platform, kind = kind_of(type_)
    if not re.fullmatch(NAME_PATTERN, name):
        raise NotImported(
            f"{name!r} is not a name",
            hint="use letters, digits, hyphens, underscores and dots: import TYPE NAME ID",
        )
    lifecycle, text = load_lifecycle_class(platform, kind), id_
    id_ = importing.parse_object_id(lifecycle, text)
    found = next((each for each in held if (each.kind, each.id) == (kind, id_)), None)
    with raise_as_engine_errors():
        told = importing.merge_import_inputs(lifecycle, text, found.listed_inputs if found else {})
    if found is None:
        return ImportChoice(platform, kind, id_, name, region=region, told=told)
    return ImportChoice(platform, kind, id_, name, found.name, found.region or region, told)


def all_of(held: Sequence[ExistingObject], wanted: Filter) -> list[ImportChoice]:
    """What an account holds and the filter takes. Raises EngineError where that cannot be told."""
    taken = [each for each in held if wanted.takes(each)]
    wanted.refuse_what_fits_nothing(held)
    return [
        ImportChoice(
            each.platform, each.kind, each.id, "", each.name, each.region, each.listed_inputs
        )
        for each in taken
    ]


def kind_of(type_: str) -> tuple[str, str]:
    """The platform and the kind of `together:Cluster`; also of a whole type token."""
    platform, _, kind = type_.rpartition("gpuform.")[2].removeprefix("gpuform:").partition(":")
    try:
        load_lifecycle_class(platform, kind)
    except UnsupportedKind:
        known = tuple(f"{each}:{kind}" for each, kind in list_kinds())
        near = find_nearest_name(f"{platform}:{kind}", known)
        hint = f"did you mean {near}?" if near else f"there is {', '.join(known)}"
        raise NotImported(f"there is no type '{type_}'", hint) from None
    return platform, kind


def _has(tags: Mapping[str, str | None], wanted: str) -> bool:
    name, is_pair, value = wanted.partition("=")
    return name in tags and (not is_pair or tags[name] == value)
