"""Build declarations from resource registrations: entries, options, configuration and outputs.

`program_and_state` passes the registrations of a program's runs or of a state; `output_matching`
finds references in values, `registered_options` builds options.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from pydantic import BaseModel

from gpuform.providers.values import PropertyMap, PropertyValue, Secret, unwrap_secrets
from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.topology import NAME_PATTERN, SECTIONS
from gpuform.stacks.convert import NOWHERE
from gpuform.stacks.convert.output_matching import (
    ComputedValue,
    OutputIndex,
    find_common_reference,
    match_values,
)
from gpuform.stacks.convert.registered_options import ResourceRequest, build_options
from gpuform.stacks.convert.secret_values import DisclosedSecret, SecretValues
from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    Declarations,
    DeclaredReference,
    InterpolatedText,
    ResourceEntry,
    Value,
    find_references,
)
from gpuform.stacks.document.diagnostics import DocumentDiagnostic, SourcePosition
from gpuform.stacks.engine.registration import Read
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_REFERENCE_TYPE, STACK_TYPE, name_of
from gpuform.stacks.resource_rules import find_kind, is_secret_property
from gpuform.stacks.review.differences import find_inputs_model
from gpuform.stacks.review.value_text import PROVIDER_PROPERTY, short_type, to_display_value

_SECTION_BY_KIND: Final = {kind: section for section, kind in SECTIONS.items()}

IndexLookup = Callable[[Sequence[str]], Sequence[OutputIndex]]
"""Returns, for each run, the index of the outputs of the resources with the given URNs."""


@dataclass(frozen=True, slots=True)
class RecordedRuns:
    """The registrations and outputs of all runs of a program, or of a state as its only run.

    `resources` has one item for each resource: its registrations, one for each run. `outputs` are
    the stack's outputs, one mapping for each run.
    """

    resources: Sequence[Sequence[ResourceRequest]]
    outputs: Sequence[PropertyMap]


def assign_references(
    requests: Sequence[ResourceRequest], problems: list[DocumentDiagnostic]
) -> dict[str, DeclaredReference]:
    """Return the reference of each resource by URN; resources without one add to `problems`.

    The stack itself gets none. Stack references, module instances and types without a section
    cannot become entries. Invalid names and repeated addresses are problems as well, but keep their
    reference.
    """
    references: dict[str, DeclaredReference] = {}
    first_requests: dict[DeclaredReference, ResourceRequest] = {}
    for request in requests:
        if request.type == STACK_TYPE:
            continue
        kind = find_kind(request.type)
        if kind is None:
            problems.append(_create_kind_problem(request))
            continue
        reference = DeclaredReference(_SECTION_BY_KIND[kind[1]], request.name)
        if not re.fullmatch(NAME_PATTERN, request.name):
            message = f"{request.name!r} is not a valid name for an entry"
            hint = (
                "rename it with `gpuform state rename`: letters, digits, hyphens, underscores, dots"
            )
            problems.append(create_problem(request, "name", message, hint))
        elif reference in first_requests:
            message = f"two resources would have the address {reference.section}.{request.name}"
            hint = "rename one of them with `gpuform state rename`"
            problems.append(create_problem(request, "name", message, hint))
        first_requests.setdefault(reference, request)
        references[request.urn] = reference
    return references


def _create_kind_problem(request: ResourceRequest) -> DocumentDiagnostic:
    """Return the problem of a resource whose type has no section in a topology."""
    hint = ""
    if request.type == STACK_REFERENCE_TYPE:
        message = f"{request.name} reads another stack"
        hint = "remove it, convert, then declare it by hand under stack_references"
    elif request.type == MODULE_TYPE:
        message = f"{request.name} is an instance of a module; the module's file is unknown here"
        hint = "convert the topology that includes the module with `gpuform convert`"
    else:
        type_name = short_type(request.type)
        message = f"{request.name} is a {type_name}: topologies have no section for it"
    return create_problem(request, "kind", message, hint)


@dataclass(slots=True)
class DeclarationBuilder:
    """Builds declarations from registrations.

    `references` are the references by URN; resources without one are left out. Values without an
    equivalent in a topology are added to `problems`, and None takes their place.
    """

    references: Mapping[str, DeclaredReference]
    find_indexes: IndexLookup
    find_output_indexes: Callable[[str], Sequence[OutputIndex]]
    secrets: SecretValues
    problems: list[DocumentDiagnostic] = field(default_factory=list)

    def build(self, runs: RecordedRuns) -> Declarations:
        """Return the declarations of all resources and outputs."""
        entries = [
            self.build_entry(requests)
            for requests in runs.resources
            if requests[0].urn in self.references
        ]
        outputs = {
            name: self.build_output(
                name, [outputs_of_run.get(name) for outputs_of_run in runs.outputs]
            )
            for name in sorted(runs.outputs[0])
        }
        return Declarations(entries, self.secrets.list_variables(), outputs)

    def build_entry(self, requests: Sequence[ResourceRequest]) -> ResourceEntry:
        """Return the entry of one resource.

        `requests` are the resource's registrations, one for each run. Null properties and the
        provider are left out; an unknown property is a problem. Dependencies without a reference in
        a property or an option become `depends_on`.
        """
        first, reference = requests[0], self.references[requests[0].urn]
        platform, _ = find_kind(first.type) or ("", "")
        properties: dict[str, Value] = {}
        options: dict[str, Value] = {}
        if isinstance(first, Read):
            ids = [request.id for request in requests if isinstance(request, Read)]
            options["id"] = self.build_value(requests, "id", ids, first.dependencies)
        else:
            rules = get_field_rules(find_inputs_model(first.type) or BaseModel)
            for key in first.inputs:
                if key not in rules and key != PROVIDER_PROPERTY:
                    message = (
                        f"{escape_invisible(first.name)} has no property {escape_invisible(key)!r}"
                    )
                    hint = (
                        "remove it from the state with `gpuform stack export` and "
                        "`gpuform stack import`"
                    )
                    self.problems.append(create_problem(first, "property", message, hint))
                # The reference to the provider is among the inputs; topologies have no such
                # property.
                elif key != PROVIDER_PROPERTY and first.inputs[key] is not None:
                    dependencies = (first.property_dependencies or {}).get(key, ())
                    values = [request.inputs.get(key) for request in requests]
                    value = self.build_value(requests, key, values, dependencies)
                    properties[key] = sort_members(rules.get(key), value)
        options |= build_options(requests, self)
        referenced_addresses = {
            self.get_address(reference_in_entry)
            for reference_in_entry in find_references([properties, options], DeclaredReference)
        }
        further_dependencies = [
            self.references[urn]
            for urn in first.dependencies
            if urn in self.references
            # The option `parent` already shows this dependency.
            and urn != first.parent
            and self.get_address(self.references[urn]) not in referenced_addresses
        ]
        if further_dependencies:
            options["depends_on"] = further_dependencies
        return ResourceEntry(reference.section, reference.name, platform, properties, options)

    @staticmethod
    def get_address(reference: DeclaredReference) -> str:
        """Return the resource's section and name, `clusters.train`, without further steps."""
        return f"{reference.section}.{reference.name}"

    def build_value(
        self,
        requests: Sequence[ResourceRequest],
        key: str,
        values: Sequence[PropertyValue],
        dependencies: Sequence[str],
    ) -> Value:
        """Return the value of a property or option; None, with a problem, without an equivalent.

        `values` has one value for each run; `dependencies` are the URNs on which the value depends.
        A value that depends on a resource without a reference to the resource was computed. A
        secret that the topology would show has no equivalent either.
        """
        indexes = self.find_indexes(dependencies)
        is_secret = is_secret_property(requests[0].type, key)
        try:
            value = self.convert_value(
                values, indexes, (requests[0].name, key), is_secret=is_secret
            )
        except ComputedValue:
            return self.report_problem(requests[0], key, "is computed from outputs")
        except DisclosedSecret:
            message_and_hint = _describe_disclosure(f"{requests[0].name}.{key}")
            self.problems.append(create_problem(requests[0], "secret", *message_and_hint))
            return None
        # A state shows only the result of a secret text: its parts become `depends_on`.
        is_secret_of_state = len(values) == 1 and isinstance(values[0], Secret)
        if is_secret_of_state and any(find_references(value, ConfigReference)):
            return value
        referenced_addresses = {
            self.get_address(reference) for reference in find_references(value, DeclaredReference)
        }
        unreferenced_names = [
            name_of(urn)
            for urn in dependencies
            if urn in self.references
            and self.get_address(self.references[urn]) not in referenced_addresses
        ]
        if unreferenced_names:
            return self.report_problem(
                requests[0], key, f"is computed from outputs of {', '.join(unreferenced_names)}"
            )
        return value

    def report_problem(self, request: ResourceRequest, key: str, reason: str) -> None:
        """Add the problem of a value without an equivalent in a topology."""
        message = f"{request.name}.{key} {reason}, which a topology cannot express"
        hint = "use the output itself or in a text, or write the entry by hand"
        self.problems.append(create_problem(request, "computed", message, hint))

    def build_output(self, name: str, values: Sequence[PropertyValue]) -> Value:
        """Return the value of a stack output; None, with a problem, without an equivalent."""
        try:
            return self.convert_value(values, self.find_output_indexes(name), ("output", name))
        except ComputedValue:
            message = f"the output {name} is computed from outputs, which a topology cannot express"
            hint = "export the output itself or in a text"
            self.problems.append(
                DocumentDiagnostic(SourcePosition("outputs", NOWHERE), "computed", message, hint)
            )
            return None
        except DisclosedSecret:
            position = SourcePosition("outputs", NOWHERE)
            self.problems.append(
                DocumentDiagnostic(position, "secret", *_describe_disclosure(f"the output {name}"))
            )
            return None

    def convert_value(
        self,
        values: Sequence[PropertyValue],
        indexes: Sequence[OutputIndex],
        name: tuple[str, ...],
        *,
        is_secret: bool = False,
    ) -> Value:
        """Return the value with references for outputs and configuration for secret parts.

        `is_secret` means that the property stays secret whatever the value refers to. `name` is the
        path of the value, of which the keys of new configuration are made.

        Raises:
            ComputedValue: the runs differ in more than outputs.
            DisclosedSecret: the topology would show a part of a secret.
        """
        if any(isinstance(value, Secret) for value in values):
            unwrapped_values = [unwrap_secrets(value) for value in values]
            return self._convert_secret(unwrapped_values, indexes, name, is_secret)
        plain_values = [to_display_value(value, show_secrets=True) for value in values]
        # An object that is an output as a whole becomes one reference, not a reference for each
        # member.
        reference = find_common_reference(plain_values, indexes)
        if reference is not None:
            return reference
        members = _zip_members(values)
        if members is None:
            return self.secrets.replace_secret_texts(name, match_values(plain_values, indexes))
        # Configuration can take the place of a value, but not of a key.
        if any(self.secrets.has_secret_in(str(key)) for key, _ in members):
            raise DisclosedSecret
        converted = {
            key: self.convert_value(member_values, indexes, (*name, str(key)), is_secret=is_secret)
            for key, member_values in members
        }
        return converted if isinstance(values[0], dict) else list(converted.values())

    def _convert_secret(
        self,
        values: Sequence[PropertyValue],
        indexes: Sequence[OutputIndex],
        name: tuple[str, ...],
        is_secret: bool,
    ) -> Value:
        """Return the reference or configuration in place of a secret.

        The keys of an object are as secret as its values, so the object becomes one configuration
        value. An object with outputs inside is converted member by member: only a program builds
        one, with keys from its own source. Raises DisclosedSecret for a public output that the
        program itself made secret.
        """
        plain_values = [to_display_value(value, show_secrets=True) for value in values]
        matched = match_values(plain_values, indexes, secret=True)
        is_only_run = len(values) == 1
        if isinstance(matched, InterpolatedText):
            matched = self.secrets.replace_literal_parts(name, matched)
        parts = [*find_references(matched, DeclaredReference, ConfigReference)]
        if isinstance(matched, dict | list) and not is_only_run and parts:
            members = _zip_members(values) or []
            if any(self.secrets.has_secret_in(str(key)) for key, _ in members):
                raise DisclosedSecret
            # A member that is secret only through its neighbors needs no more than their secrecy.
            is_secret = is_secret or any(map(indexes[0].has_secret_reference, parts))
            converted = {
                key: self._convert_secret(member_values, indexes, (*name, str(key)), is_secret)
                for key, member_values in members
            }
            return converted if isinstance(matched, dict) else list(converted.values())
        if isinstance(matched, InterpolatedText | DeclaredReference | ConfigReference):
            # A reference to a public output would show the secret value in plans.
            if is_secret or indexes[0].has_secret_reference(matched):
                return matched
            # The program itself made a public output secret, for which a topology has no form. In a
            # state the equality may be chance, so the value becomes configuration.
            if not is_only_run:
                raise DisclosedSecret
        return self.secrets.get_reference(name, plain_values[0])


def _describe_disclosure(label: str) -> tuple[str, str]:
    """Return message and hint of a secret that a topology cannot keep secret."""
    return (
        f"{label} contains a secret that a topology cannot keep secret",
        "read it from secret configuration (`gpuform config set --secret`), or remove it",
    )


def sort_members(rules: FieldRules | None, value: Value) -> Value:
    """Return the value with objects in the order of the models.

    Objects without a model are in alphabetical order.
    """
    if isinstance(value, list):
        return [sort_members(rules, item) for item in value]
    if not isinstance(value, dict):
        return value
    # The keys of a map are the user's: a model has no order for them.
    if rules is not None and rules.is_map:
        return {
            key: sort_members(replace(rules, is_map=False), value[key]) for key in sorted(value)
        }
    nested_rules = rules.nested_rules if rules else {}
    names = [
        *(name for name in nested_rules if name in value),
        *sorted(value.keys() - nested_rules.keys()),
    ]
    return {name: sort_members(nested_rules.get(name), value[name]) for name in names}


def _zip_members(values: Sequence[Any]) -> list[tuple[Any, list[Any]]] | None:
    """Return the members of equal objects or lists as (key, values), or None for another value.

    Raises:
        ComputedValue: the objects or lists differ in their keys or in length.
    """
    first = values[0]
    if not isinstance(first, dict | list):
        return None
    if any(type(value) is not type(first) or len(value) != len(first) for value in values):
        raise ComputedValue
    if isinstance(first, list):
        return [(index, list(items)) for index, items in enumerate(zip(*values, strict=True))]
    if any(set(value) != set(first) for value in values):
        raise ComputedValue
    return [(key, [value[key] for value in values]) for key in first]


def create_problem(
    request: ResourceRequest, rule: str, message: str, hint: str = ""
) -> DocumentDiagnostic:
    """Return a problem at the request's line in the program.

    Without a known line the position is the resource's URN.
    """
    # A path on Windows has a colon of its own.
    file, _, line = request.place.rpartition(":")
    has_line = bool(file) and line.isdigit()
    position = SourcePosition(file, int(line)) if has_line else SourcePosition(request.urn, NOWHERE)
    return DocumentDiagnostic(position, rule, message, hint)
