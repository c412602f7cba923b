"""Declare imported objects: entries with names, references instead of ids, and no secret in the
clear.
"""

import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.context import ProviderContext, get_clock, use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings
from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    Declarations,
    ResourceEntry,
    ResourceReference,
    Value,
)
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.importing.chosen import ImportChoice, NotImported


@dataclass(frozen=True, slots=True)
class Known:
    """A declared resource, with the object that it stands for."""

    platform: str
    kind: str
    id: str
    outputs: Mapping[str, Any]
    reference: ResourceReference


@dataclass(slots=True)
class Links:
    """What values can be references to. The first resource with a value is taken."""

    _of: dict[tuple[str, str, str, str], ResourceReference] = field(default_factory=dict)

    @classmethod
    def to(cls, resources: Iterable[Known]) -> "Links":
        links = cls()
        for each in resources:
            outputs = {"id": each.id, **{k: v for k, v in each.outputs.items() if k != "id"}}
            for name, value in outputs.items():
                if isinstance(value, str) and value:
                    links._of.setdefault((each.platform, each.kind, name, value), each.reference)
        return links

    def applied(self, platform: str, kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs, with references for the values that are another resource's."""
        model: type[InputModel] = load_lifecycle_class(platform, kind).inputs
        return {
            name: self._reference(platform, get_field_rules(model).get(name), value) or value
            for name, value in inputs.items()
        }

    def _reference(
        self, platform: str, rules: FieldRules | None, value: Any
    ) -> ResourceReference | None:
        if rules is None or not isinstance(value, str):
            return None
        for kind, output in _sources(rules):
            found = self._of.get((platform, kind, output, value))
            if found is not None:
                steps = () if output == "id" else (output,)
                return ResourceReference(found.section, found.name, steps, found.key)
        return None


def _sources(rules: FieldRules) -> Iterator[tuple[str, str]]:
    if rules.reference_kind:
        yield rules.reference_kind, "id"
    if rules.output_of:
        yield rules.output_of.kind, rules.output_of.output


READERS = 256
MOST_TOLD = 10


@dataclass(frozen=True, slots=True)
class Found:
    """An object as its platform shows it.

    `inputs` are what a program would declare of it; `outputs` all that there is to know.
    """

    wanted: ImportChoice
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


def read(wanted: Sequence[ImportChoice], settings: Settings) -> list[Found]:
    """Each object. Raises EngineError with what is wrong with all of them."""
    with ThreadPoolExecutor(READERS, thread_name_prefix="import") as pool:
        # The record of creates under way belongs to the runs that make them.
        intents, began = Intents(EphemeralRecords()), time.monotonic()

        def call() -> ProviderContext:
            return ProviderContext(clock=get_clock(os.environ), intents=intents, fresh_since=began)

        one = partial(_read, settings=settings, new_call=call)
        found = list(pool.map(one, wanted))
    problems = [each for each in found if isinstance(each, str)]
    if problems:
        more = len(problems) - MOST_TOLD
        told = [*problems[:MOST_TOLD], *([f"and {more} more"] if more > 0 else [])]
        raise EngineError("\n".join(told), hint="check the ids, and whose credentials are used")
    return [each for each in found if isinstance(each, Found)]


def _read(
    wanted: ImportChoice, settings: Settings, new_call: Callable[[], ProviderContext]
) -> Found | str:
    lifecycle = load_lifecycle_class(wanted.platform, wanted.kind)
    settings = replace(settings, region=wanted.region or settings.region)
    try:
        with use_context(new_call()):
            found = lifecycle.with_settings(settings).read(wanted.id, {})
    except GpuformError as error:
        return f"{wanted}: {error}"
    if not found.id:
        return f"{wanted}: the platform has no such object"
    return Found(wanted, found.inputs or {}, found.outs or {})


_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_TYPES: Final[Mapping[type, str]] = {dict: "object", list: "array"}


@dataclass(frozen=True, slots=True)
class Choices:
    """How the objects are to be declared.

    `given` are inputs that no platform tells; `config` are the stack's configuration values, as
    texts by name, `defaults` the variables that need none.
    """

    protect: bool = False
    parent: ResourceReference | None = None
    given: Mapping[str, Value] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    defaults: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Declaration:
    """What to write: entries, and the secret values that go into the stack's configuration."""

    declared: Declarations
    secrets: Mapping[str, str]


@dataclass(slots=True)
class Names:
    """The names that resources have, by section."""

    taken: set[tuple[str, str]]

    def of(self, wanted: ImportChoice) -> str:
        """The name that was asked for, or one that is like the object's and free."""
        if wanted.name:
            self.taken.add((wanted.section, wanted.name))
            return wanted.name
        called = _NOT_A_NAME.sub("-", wanted.called or wanted.id).strip("-.") or "imported"
        name, number = called, 1
        while (wanted.section, name) in self.taken:
            number += 1
            name = f"{called}-{number}"
        self.taken.add((wanted.section, name))
        return name


def declaration(
    found: Sequence[Found], names: Names, known: Iterable[Known], choices: Choices
) -> Declaration:
    """Raises EngineError with everything that is missing."""
    named = [(each, names.of(each.wanted)) for each in found]
    links = Links.to([*(_known(each, name) for each, name in named), *known])
    work = _Work(choices, links)
    entries = [work.entry(each, name) for each, name in named]
    if work.problems:
        more = len(work.problems) - MOST_TOLD
        told = [*work.problems[:MOST_TOLD], *([f"and {more} more"] if more > 0 else [])]
        raise NotImported("\n".join(told), hint="\n".join(dict.fromkeys(work.hints)) or None)
    return Declaration(Declarations(entries, list(work.variables.values())), work.secrets)


def find_value_problems(found: Found) -> list[str]:
    """Return what a declaration refuses of the values that the platform has, one text each."""
    wanted = found.wanted
    model = load_lifecycle_class(wanted.platform, wanted.kind).inputs
    required = {name for name, each in model.model_fields.items() if each.is_required()}
    missing = required - found.inputs.keys()
    problems = validate_inputs(model, {**dict.fromkeys(missing, UNKNOWN), **found.inputs})[1]
    own = (each for each in problems if re.split(r"[.\[]", each.path)[0] in found.inputs)
    return [f"{each.path} {each.reason}" for each in own]


@dataclass(slots=True)
class _Work:
    choices: Choices
    links: Links
    variables: dict[str, ConfigEntry] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    def entry(self, found: Found, name: str) -> ResourceEntry:
        wanted = found.wanted
        kind = load_lifecycle_class(wanted.platform, wanted.kind)
        model = kind.inputs
        inputs = {
            **{k: v for k, v in wanted.told.items() if k in model.model_fields},
            **found.inputs,
        }
        values = {**inputs, **self._missing(wanted, model, inputs, kind.import_field)}
        plain = {k: v for k, v in values.items() if not isinstance(v, ConfigReference)}
        unknown = dict.fromkeys(values.keys() - plain.keys(), UNKNOWN)
        for problem in validate_inputs(model, {**plain, **unknown})[1]:
            self.problems.append(f"{wanted}: {problem.path} {problem.reason}")
        values = _without_computed(model, self._without_secrets(name, model, values))
        properties = self.links.applied(wanted.platform, wanted.kind, values)
        options: dict[str, Value] = {"import": wanted.id}
        if self.choices.parent is not None:
            options["parent"] = self.choices.parent
        if self.choices.protect:
            options["protect"] = True
        return ResourceEntry(wanted.section, name, wanted.platform, properties, options)

    def _missing(
        self, wanted: ImportChoice, model: type[InputModel], inputs: Mapping[str, Any], asked: str
    ) -> dict[str, Value]:
        """What was given, and required secrets, of that which nobody tells."""
        found: dict[str, Value] = {}
        for name, field_ in model.model_fields.items():
            if name in inputs:
                continue
            if name in self.choices.given:
                found[name] = self.choices.given[name]
            elif field_.is_required() and get_field_rules(model)[name].secret:
                found[name] = ConfigReference(name)
                self._require(name)
            elif field_.is_required() or name == asked:
                self.problems.append(f"{wanted}: the platform does not tell its {name}")
                self.hints.append(f"give it: --set {name}=VALUE")
        for value in found.values():
            if isinstance(value, ConfigReference):
                self._require(value.name)
        return found

    def _require(self, variable: str) -> None:
        self.variables.setdefault(variable, ConfigEntry(variable, {"secret": True}))
        if variable not in self.choices.config and variable not in self.choices.defaults:
            problem = (
                f"the stack has no value of config.{variable}, a secret that no platform tells"
            )
            if problem not in self.problems:
                self.problems.append(problem)
                self.hints.append(f"set it: gpuform config set --secret {variable}")

    def _without_secrets(
        self, name: str, model: type[InputModel], values: Mapping[str, Value]
    ) -> dict[str, Value]:
        """Secrets that the platform tells become configuration of the stack."""
        made = dict(values)
        for key, value in values.items():
            if isinstance(value, ConfigReference) or not get_field_rules(model)[key].holds_secret:
                continue
            type_ = _TYPES.get(type(value), "string")
            said = {"secret": True} if type_ == "string" else {"type": type_, "secret": True}
            text = value if isinstance(value, str) else json.dumps(value)
            variable = self._variable(f"{name}_{key}", text)
            self.variables[variable] = ConfigEntry(variable, said)
            self.secrets[variable] = text
            made[key] = ConfigReference(variable)
        return made

    def _variable(self, called: str, value: str) -> str:
        """A configuration variable that has no other value."""
        names = (called if number == 1 else f"{called}_{number}" for number in count(1))
        return next(name for name in names if self.choices.config.get(name, value) == value)


def _without_computed(model: type[InputModel], values: dict[str, Value]) -> dict[str, Value]:
    """Without what the model computes from the rest, such as sums: nobody has to keep it right."""
    whole, left = model.normalize(dict(values)), dict(values)
    for name, value in values.items():
        less = {key: each for key, each in left.items() if key != name}
        if model.normalize(dict(less)) == whole:
            left = less
            continue
        for inner in value if isinstance(value, dict) else ():
            part = {key: each for key, each in left[name].items() if key != inner}
            if model.normalize({**left, name: part}) == whole:
                left[name] = part
    return left


def _known(found: Found, name: str) -> Known:
    wanted = found.wanted
    outputs = {**found.inputs, **found.outputs}
    return Known(*wanted.key, outputs, ResourceReference(wanted.section, name))
