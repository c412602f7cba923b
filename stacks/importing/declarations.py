"""Read objects from their platforms, and build the entries that declare them.

Entries get free names, references in place of the ids of other resources, and references to the
stack's configuration in place of secrets. `planning` calls this module.
"""

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, count
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.context import ProviderContext, RunContext, use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings
from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.errors import EngineError
from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    Declarations,
    DeclaredReference,
    ResourceEntry,
    Value,
)
from gpuform.stacks.importing.selection import ImportChoice, ImportRefused


@dataclass(frozen=True, slots=True)
class DeclaredResource:
    """A declared resource with its object's id and outputs, and the reference to its entry."""

    platform: str
    kind: str
    id: str
    outputs: Mapping[str, Any]
    reference: DeclaredReference


@dataclass(slots=True)
class ReferenceIndex:
    """The values that entries can write as references to other resources.

    Of several resources with the same value, the first one is referred to.
    """

    _references: dict[tuple[str, str, str, str], DeclaredReference] = field(default_factory=dict)

    @classmethod
    def from_resources(cls, resources: Iterable[DeclaredResource]) -> "ReferenceIndex":
        """Return an index of the ids and the non-empty text outputs of the resources."""
        index = cls()
        for resource in resources:
            # The id of the state is the platform's; an output named id may be another value.
            for name, value in {**resource.outputs, "id": resource.id}.items():
                if isinstance(value, str) and value:
                    key = (resource.platform, resource.kind, name, value)
                    index._references.setdefault(key, resource.reference)
        return index

    def insert_references(
        self, platform: str, kind: str, inputs: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the inputs with references in place of outputs of other resources.

        Only top-level fields that hold an id or an output of another kind change.
        """
        model: type[InputModel] = load_lifecycle_class(platform, kind).inputs
        return {
            name: self._find_reference(platform, get_field_rules(model).get(name), value) or value
            for name, value in inputs.items()
        }

    def _find_reference(
        self, platform: str, rules: FieldRules | None, value: Any
    ) -> DeclaredReference | None:
        """Return the reference for a field's value, or None.

        None also for values that are not text, and for fields that cannot hold another resource's
        output.
        """
        if rules is None or not isinstance(value, str):
            return None
        for kind, output in _list_referenced_outputs(rules):
            reference = self._references.get((platform, kind, output, value))
            if reference is not None:
                # A reference to a resource itself means its id.
                steps = () if output == "id" else (output,)
                return DeclaredReference(reference.section, reference.name, steps, reference.key)
        return None


def _list_referenced_outputs(rules: FieldRules) -> Iterator[tuple[str, str]]:
    """Yield the kinds and outputs whose values the field may hold."""
    if rules.reference_kind:
        yield rules.reference_kind, "id"
    if rules.output_of:
        yield rules.output_of.kind, rules.output_of.output


MAX_READERS = 256
"""The number of objects read at the same time."""
MAX_REPORTED_PROBLEMS = 10
"""The number of problems in one error; the others are only counted."""


@dataclass(frozen=True, slots=True)
class ObservedObject:
    """An object as its platform reports it.

    `inputs` are the values that a program would declare; `outputs` are all reported values.
    """

    choice: ImportChoice
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


def read_objects(choices: Sequence[ImportChoice], settings: Settings) -> list[ObservedObject]:
    """Read the objects from the platforms, many at the same time.

    Raises:
        EngineError: at least one object could not be read or does not exist; the first ten problems
            are in the message.
    """
    with ThreadPoolExecutor(MAX_READERS, thread_name_prefix="import") as pool:
        # The record of creates under way belongs to the runs that make them.
        intents, started_at = Intents(EphemeralRecords()), time.monotonic()
        run = RunContext(settings.environ)

        def create_context() -> ProviderContext:
            return ProviderContext(run=run, intents=intents, fresh_since=started_at)

        read_one = partial(_read_object, settings=settings, create_context=create_context)
        results = list(pool.map(read_one, choices))
    problems = [result for result in results if isinstance(result, str)]
    if problems:
        hint = "check the ids, and that the credentials belong to the right account"
        raise EngineError(_join_problems(problems), hint=hint)
    return [result for result in results if isinstance(result, ObservedObject)]


def _join_problems(problems: Sequence[str]) -> str:
    """Return the first problems in one message, and the number of the others."""
    unreported_count = len(problems) - MAX_REPORTED_PROBLEMS
    more = [f"and {unreported_count} more"] if unreported_count > 0 else []
    return "\n".join([*problems[:MAX_REPORTED_PROBLEMS], *more])


def _read_object(
    choice: ImportChoice, settings: Settings, create_context: Callable[[], ProviderContext]
) -> ObservedObject | str:
    """Return the object, or the problem as a text that begins with the object's label."""
    lifecycle = load_lifecycle_class(choice.platform, choice.kind)
    # The region of the platform's list wins over the configured one: the object is there.
    settings = replace(settings, region=choice.region or settings.region)
    try:
        with use_context(create_context()):
            response = lifecycle.with_settings(settings).read(choice.id, {})
    except GpuformError as error:
        return f"{choice}: {error}"
    # A read of a missing object returns no id, as Pulumi's protocol demands.
    if not response.id:
        return f"{choice}: object not found on the platform"
    return ObservedObject(choice, response.inputs or {}, response.outs or {})


_INVALID_NAME_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9_.-]+")
_CONFIG_TYPES: Final[Mapping[type, str]] = {dict: "object", list: "array"}
"""The types of configuration variables for values that are not text."""


@dataclass(frozen=True, slots=True)
class DeclarationOptions:
    """How to declare the objects.

    `set_values` are inputs for objects whose platform does not report them. `config` are the values
    of the stack's configuration, as text by name; `defaulted_variables` are the variables with a
    default in the topology; `declared_variables` are those that the project declares, or None if
    the project may read others.
    """

    protect: bool = False
    parent: DeclaredReference | None = None
    set_values: Mapping[str, Value] = field(default_factory=dict)
    config: Mapping[str, str] = field(default_factory=dict, repr=False)
    defaulted_variables: Collection[str] = ()
    declared_variables: Collection[str] | None = None


@dataclass(frozen=True, slots=True)
class ImportDeclaration:
    """The entries to write, and the secret values for the stack's configuration, by variable."""

    declared: Declarations
    secrets: Mapping[str, str]


@dataclass(slots=True)
class ResourceNames:
    """The names in use, by section. Chosen names are added."""

    taken: set[tuple[str, str]]

    def choose_name(self, choice: ImportChoice) -> str:
        """Return the requested name, or a free one derived from the object's name or id.

        A requested name is not checked: the caller makes sure that it is free.
        """
        if choice.name:
            self.taken.add((choice.section, choice.name))
            return choice.name
        valid_name = _INVALID_NAME_CHARACTERS.sub("-", choice.object_name or choice.id)
        base_name = valid_name.strip("-.") or "imported"
        names = chain([base_name], (f"{base_name}-{number}" for number in count(2)))
        name = next(name for name in names if (choice.section, name) not in self.taken)
        self.taken.add((choice.section, name))
        return name


def build_declaration(
    observed_objects: Sequence[ObservedObject],
    names: ResourceNames,
    declared_resources: Iterable[DeclaredResource],
    options: DeclarationOptions,
) -> ImportDeclaration:
    """Return entries for the objects, which may refer to each other and to `declared_resources`.

    Raises:
        ImportRefused: values are missing or not valid; the first ten problems are in the message.
    """
    named_objects = [(item, names.choose_name(item.choice)) for item in observed_objects]
    new_resources = (_to_declared_resource(observed, name) for observed, name in named_objects)
    references = ReferenceIndex.from_resources([*new_resources, *declared_resources])
    builder = _DeclarationBuilder(options, references)
    entries = [builder.build_entry(observed, name) for observed, name in named_objects]
    if builder.problems:
        hint = "\n".join(dict.fromkeys(builder.hints)) or None
        raise ImportRefused(_join_problems(builder.problems), hint=hint)
    declared = Declarations(entries, list(builder.variables.values()))
    return ImportDeclaration(declared, builder.secrets)


def find_value_problems(observed: ObservedObject) -> list[str]:
    """Return the reasons why a declaration would refuse reported values, one for each value.

    Missing values are no problem here: they can be set on the command line.
    """
    choice = observed.choice
    model = load_lifecycle_class(choice.platform, choice.kind).inputs
    required = {
        name for name, model_field in model.model_fields.items() if model_field.is_required()
    }
    # A missing value is no problem here: UNKNOWN stands in its place.
    missing = required - observed.inputs.keys()
    problems = validate_inputs(model, {**dict.fromkeys(missing, UNKNOWN), **observed.inputs})[1]
    reported_problems = (
        problem for problem in problems if re.split(r"[.\[]", problem.path)[0] in observed.inputs
    )
    return [f"{problem.path} {problem.reason}" for problem in reported_problems]


@dataclass(slots=True)
class _DeclarationBuilder:
    """Build the entries of one import, and collect variables, secrets, problems and their hints."""

    options: DeclarationOptions
    references: ReferenceIndex
    variables: dict[str, ConfigEntry] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    def build_entry(self, observed: ObservedObject, name: str) -> ResourceEntry:
        """Return the entry of one object; add missing and invalid values to `problems`.

        The entry has the object's id as its `import` option. Secrets become references to
        configuration variables, which are added, and ids of declared objects become references to
        these.
        """
        choice = observed.choice
        kind = load_lifecycle_class(choice.platform, choice.kind)
        model = kind.inputs
        inputs = {
            # What the object itself reports wins over the platform's list.
            **{k: v for k, v in choice.listed_inputs.items() if k in model.model_fields},
            **observed.inputs,
        }
        values = {**inputs, **self._find_missing_values(choice, model, inputs, kind.import_field)}
        known_values = {k: v for k, v in values.items() if not isinstance(v, ConfigReference)}
        # The value of a reference is not known here: validation must accept any value for it.
        unknown = dict.fromkeys(values.keys() - known_values.keys(), UNKNOWN)
        for problem in validate_inputs(model, {**known_values, **unknown})[1]:
            self.problems.append(f"{choice}: {problem.path} {problem.reason}")
        values = _drop_computed_values(model, self._move_secrets_to_config(name, model, values))
        properties = self.references.insert_references(choice.platform, choice.kind, values)
        options: dict[str, Value] = {"import": choice.id}
        if self.options.parent is not None:
            options["parent"] = self.options.parent
        if self.options.protect:
            options["protect"] = True
        return ResourceEntry(choice.section, name, choice.platform, properties, options)

    def _find_missing_values(
        self,
        choice: ImportChoice,
        model: type[InputModel],
        inputs: Mapping[str, Any],
        import_field: str,
    ) -> dict[str, Value]:
        """Return values for fields without a value: set on the command line, or required secrets.

        `inputs` are the values that are there already. A required secret becomes a reference to the
        configuration variable of the field's name, which is added to `variables` and, without a
        value in the stack, to `problems`. Other required fields, and the `import_field`, are added
        to `problems`.
        """
        missing_values: dict[str, Value] = {}
        for name, field_ in model.model_fields.items():
            if name in inputs:
                continue
            if name in self.options.set_values:
                missing_values[name] = self.options.set_values[name]
            elif field_.is_required() and get_field_rules(model)[name].secret:
                missing_values[name] = ConfigReference(name)
                self._require_variable(name)
            elif field_.is_required() or name == import_field:
                self.problems.append(f"{choice}: the platform does not report {name}")
                self.hints.append(f"set it: --set {name}=VALUE")
        for value in missing_values.values():
            if isinstance(value, ConfigReference):
                self._require_variable(value.name)
        return missing_values

    def _require_variable(self, variable: str) -> None:
        """Declare a secret variable; add a problem if neither stack nor topology has a value."""
        self.variables.setdefault(variable, ConfigEntry(variable, {"secret": True}))
        if variable not in self.options.config and variable not in self.options.defaulted_variables:
            problem = (
                f"the stack has no value for config.{variable}, a secret that no platform reports"
            )
            # Several objects may need the same secret: one message is enough.
            if problem not in self.problems:
                self.problems.append(problem)
                self.hints.append(self._format_setting_hint(variable))

    def _format_setting_hint(self, variable: str) -> str:
        """Return how to set a secret variable, which `config set` rejects until it is declared."""
        hint = f"set it: gpuform config set --secret {variable}"
        declared_variables = self.options.declared_variables
        if declared_variables is None or variable in declared_variables:
            return hint
        return (
            f"declare it under `config` of the topology ({variable}: {{secret: true}}), then {hint}"
        )

    def _move_secrets_to_config(
        self, name: str, model: type[InputModel], values: Mapping[str, Value]
    ) -> dict[str, Value]:
        """Return the values with references to new secret variables in place of secrets.

        The variables are named NAME_FIELD, and their values are added to `secrets`.
        """
        public_values = dict(values)
        for key, value in values.items():
            if isinstance(value, ConfigReference) or not get_field_rules(model)[key].holds_secret:
                continue
            type_ = _CONFIG_TYPES.get(type(value), "string")
            variable_fields = (
                {"secret": True} if type_ == "string" else {"type": type_, "secret": True}
            )
            # The stack's configuration holds text only.
            secret_text = value if isinstance(value, str) else json.dumps(value)
            # The configuration may already have this variable with another value.
            variable = self._choose_variable_name(f"{name}_{key}", secret_text)
            self.variables[variable] = ConfigEntry(variable, variable_fields)
            self.secrets[variable] = secret_text
            public_values[key] = ConfigReference(variable)
        return public_values

    def _choose_variable_name(self, base_name: str, value: str) -> str:
        """Return a variable name, either free or already with this value."""
        names = (base_name if number == 1 else f"{base_name}_{number}" for number in count(1))
        return next(name for name in names if self.options.config.get(name, value) == value)


def _drop_computed_values(model: type[InputModel], values: dict[str, Value]) -> dict[str, Value]:
    """Return the values without computed ones, such as sums of other values.

    Nobody then has to keep a declared sum right by hand.
    """
    normalized, remaining_values = model.normalize(dict(values)), dict(values)
    for name, value in values.items():
        fewer_values = {key: other for key, other in remaining_values.items() if key != name}
        if model.normalize(dict(fewer_values)) == normalized:
            remaining_values = fewer_values
            continue
        # A nested value may be partly computed, such as the counts beside a list.
        for inner in value if isinstance(value, dict) else ():
            parts = remaining_values[name].items()
            fewer_parts = {key: other for key, other in parts if key != inner}
            if model.normalize({**remaining_values, name: fewer_parts}) == normalized:
                remaining_values[name] = fewer_parts
    return remaining_values


def _to_declared_resource(observed: ObservedObject, name: str) -> DeclaredResource:
    choice = observed.choice
    outputs = {**observed.inputs, **observed.outputs}
    return DeclaredResource(*choice.key, outputs, DeclaredReference(choice.section, name))
