"""Convert a Python program, or a state, to declarations.

A program runs twice with placeholders for all outputs. What both runs declare alike is a literal,
what is an output in both is a reference, and any other difference was computed. Nothing is changed,
and platforms answer only the lookups of the program. `operations.converting` calls this module.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.values import PropertyMap, Secret
from gpuform.stacks.convert import NOWHERE, NotConverted
from gpuform.stacks.convert.declaration_builder import (
    DeclarationBuilder,
    RecordedRuns,
    assign_references,
    create_problem,
)
from gpuform.stacks.convert.output_matching import (
    OutputIndex,
    Placeholders,
    create_placeholders_of_runs,
)
from gpuform.stacks.convert.registered_options import ResourceRequest
from gpuform.stacks.convert.secret_values import SecretValues, find_texts
from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    Declarations,
    DeclaredReference,
    find_references,
)
from gpuform.stacks.document.diagnostics import DocumentDiagnostic, SourcePosition
from gpuform.stacks.engine.language_host import Program, Recorded, record
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, name_of
from gpuform.stacks.resource_rules import find_kind, find_lifecycle
from gpuform.stacks.review.value_text import to_display_value
from gpuform.stacks.topology import run_topology


def build_declarations_from_program(
    program: Program, entries: Sequence[ResourceState]
) -> tuple[Declarations, Mapping[str, str]]:
    """Return the declarations of a program, and the stack's missing secret values by key.

    `entries` are the resources of the stack's state: placeholders get the shape of their outputs,
    which the program expects.

    Raises:
        NotConverted: the program computes values, or declares something without an equivalent.
        ProgramError: the program fails.
    """
    shapes = {entry.urn: to_display_value(entry.outputs) for entry in entries if not entry.delete}
    runs = [
        _PlaceholderRun(program, shapes, placeholders)
        for placeholders in create_placeholders_of_runs()
    ]
    run_results = [run.execute() for run in runs]
    problems: list[DocumentDiagnostic] = []
    request_pairs = _pair_requests(run_results, problems)
    references = assign_references([requests[0] for requests in request_pairs], problems)
    # Both runs read the same configuration.
    secrets = SecretValues(runs[0].typed_secrets)
    indexes = [run.build_index(references) for run in runs]
    builder = DeclarationBuilder(
        references, lambda _: indexes, lambda _: indexes, secrets, problems
    )
    declarations = builder.build(
        RecordedRuns(request_pairs, [run_result.outputs for run_result in run_results])
    )
    # The program may read a secret of the configuration that no resource needs: only used ones are
    # declared.
    for name in _find_used_config(declarations):
        secrets.declare_variable(name)
    if problems:
        raise NotConverted(problems)
    return Declarations(
        declarations.entries, secrets.list_variables(), declarations.outputs
    ), secrets.missing_values


@dataclass(slots=True)
class _PlaceholderRun:
    """One run of a program with placeholders for outputs and secret configuration.

    `shapes` are the outputs in the state by URN. `typed_secrets` are the keys of secrets that keep
    their values, by value: the program may read them as numbers or objects.
    """

    program: Program
    shapes: Mapping[str, PropertyMap]
    placeholders: Placeholders
    results: dict[str, tuple[str, PropertyMap]] = field(default_factory=dict)
    secret_placeholders: dict[str, str] = field(default_factory=dict)
    typed_secrets: dict[str, str] = field(default_factory=dict)

    def execute(self) -> Recorded:
        """Run the program with placeholders for outputs and secrets, and return its declarations.

        Secrets that are JSON, as numbers are, keep their values and are added to `typed_secrets`.

        Raises:
            ProgramError: the program fails.
        """
        prefix = f"{self.program.project}:"
        secret_keys = (key for key in self.program.secret_keys if key.startswith(prefix))
        # A secret that is a number stays one, because the program reads it as a number.
        for key in secret_keys:
            value = self.program.config[key]
            if _is_json(value):
                self.typed_secrets[value] = key.partition(":")[2]
            else:
                self.secret_placeholders[key] = self.placeholders.create_text()
        config = {**self.program.config, **self.secret_placeholders}
        return record(self.program, self.get_result, config, run_topology)

    def get_result(self, request: ResourceRequest) -> tuple[str, PropertyMap]:
        """Return the id and outputs of a resource: placeholders, equal at each call."""
        if request.urn not in self.results:
            kind = find_kind(request.type)
            id_ = self.placeholders.create_text()
            shape = self.shapes.get(request.urn, {})
            outputs = self._create_outputs(kind, shape, request) if kind else {}
            self.results[request.urn] = (id_, outputs)
        return self.results[request.urn]

    def _create_outputs(
        self, kind: tuple[str, str], state_outputs: PropertyMap, request: ResourceRequest
    ) -> PropertyMap:
        """Return a placeholder for each property of a kind (platform, kind), secret ones marked.

        A placeholder gets the shape of the output in the state, or else of the property's type.
        """
        lifecycle = load_lifecycle_class(*kind)
        fields = {**lifecycle.inputs.model_fields, **lifecycle.outputs.model_fields}
        secret = {*lifecycle.list_secret_names(), *request.additional_secret_outputs}
        outputs: PropertyMap = {}
        for name in lifecycle.list_property_names():
            # The state shows the shape that the program expects; a type alone does not show the
            # length of a list.
            state_value = state_outputs.get(name)
            if state_value is not None:
                value = self.placeholders.create_like(state_value)
            else:
                value = self.placeholders.create_for_type(fields[name].annotation)
            outputs[name] = Secret(value) if name in secret else value
        return outputs

    def build_index(self, references: Mapping[str, DeclaredReference]) -> OutputIndex:
        """Return the index that finds the reference for each placeholder of this run.

        `references` maps the URN of each declared resource to its reference. The index also finds
        references for ids and URNs of resources.
        """
        index = OutputIndex(self.placeholders.pattern)
        for key, placeholder in self.secret_placeholders.items():
            index.add(ConfigReference(key.partition(":")[2]), placeholder, is_secret=True)
        for urn, reference in references.items():
            id_, outputs = self.results.get(urn, ("", {}))
            index.add(reference, id_)
            for name, value in {"urn": urn, **outputs}.items():
                index.add(replace(reference, steps=(name,)), value)
        return index


def _is_json(text: str) -> bool:
    """Return whether the program may read a secret's text as another type than text."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _pair_requests(
    run_results: Sequence[Recorded], problems: list[DocumentDiagnostic]
) -> list[tuple[ResourceRequest, ...]]:
    """Return the resources declared by all runs, each as a tuple with one request per run.

    Resources that only some runs declare, or that some create and others read, add to `problems`.
    """
    by_urn = [
        {request.urn: request for request in run.declared if request.type != STACK_TYPE}
        for run in run_results
    ]
    first, *others = by_urn
    for other in others:
        for urn in sorted({*first} ^ {*other}):
            request = first.get(urn) or other[urn]
            message = f"whether {request.name} is declared depends on outputs"
            problems.append(
                create_problem(request, "computed", message, "declare it unconditionally")
            )
        shared_urns = [urn for urn in first if urn in other]
        for urn in (urn for urn in shared_urns if type(first[urn]) is not type(other[urn])):
            message = f"whether {first[urn].name} is created or read depends on outputs"
            problems.append(create_problem(first[urn], "computed", message))
    urns_of_all_runs = [urn for urn in first if all(urn in other for other in others)]
    return [tuple(run[urn] for run in by_urn) for urn in urns_of_all_runs]


def _find_used_config(declarations: Declarations) -> Iterator[str]:
    """Yield the names of configuration values used in the declarations."""
    values = [
        dict(declarations.outputs),
        *([dict(e.properties), dict(e.options)] for e in declarations.entries),
    ]
    return (reference.name for reference in find_references(values, ConfigReference))


_MIN_OUTPUT_TEXT_LENGTH: Final = 8
"""The length from which a text in a stack output refers to an equal one of a resource."""


def build_declarations_from_state(
    entries: Sequence[ResourceState], secret_config: Mapping[str, str]
) -> tuple[Declarations, Mapping[str, str]]:
    """Return the declarations of a state, and the stack's missing secret values by key.

    The state must be decrypted.

    `secret_config` has the configuration's secrets: value -> key.

    Raises:
        NotConverted: resources have no equivalent, or the state has an unfinished replacement.
    """
    problems = [
        _create_unfinished_problem(entry)
        for entry in entries
        if entry.delete or entry.pending_replacement
    ]
    live_entries = [
        e for e in entries if not (e.delete or e.pending_replacement or is_provider(e.type))
    ]
    requests = [_to_request(entry) for entry in live_entries]
    references = assign_references(requests, problems)
    entries_by_urn = {entry.urn: entry for entry in live_entries}
    secrets = SecretValues(secret_config, _find_secret_texts(live_entries))

    def find_indexes(urns: Sequence[str]) -> list[OutputIndex]:
        return [
            _build_index(
                [
                    (references[urn], entries_by_urn[urn])
                    for urn in urns
                    if urn in references and urn in entries_by_urn
                ]
            )
        ]

    # A state has no dependencies of outputs, so an output is compared with the values of all
    # resources.
    distinctive_index = _build_distinctive_index(
        [(references[entry.urn], entry) for entry in live_entries if entry.urn in references]
    )

    def find_output_indexes(name: str) -> list[OutputIndex]:
        index = OutputIndex()
        for urn, reference in references.items():
            index.add(replace(reference, steps=(name,)), entries_by_urn[urn].outputs.get(name))
        return [index.combine_with_fallback(distinctive_index)]

    builder = DeclarationBuilder(references, find_indexes, find_output_indexes, secrets, problems)
    outputs = next((entry.outputs for entry in live_entries if entry.type == STACK_TYPE), {})
    declarations = builder.build(RecordedRuns([[request] for request in requests], [outputs]))
    if problems:
        raise NotConverted(problems)
    return declarations, secrets.missing_values


def _build_index(entries: Sequence[tuple[DeclaredReference, ResourceState]]) -> OutputIndex:
    """Return the index that finds the reference for each id and output in the state."""
    index = OutputIndex()
    for reference, entry in entries:
        # The id is added first: of equal values, such as an id that is also a property, the first
        # one counts.
        index.add(reference, entry.id)
        for name, value in _order_outputs(entry).items():
            index.add(replace(reference, steps=(name,)), value)
    return index


def _build_distinctive_index(
    entries: Sequence[tuple[DeclaredReference, ResourceState]],
) -> OutputIndex:
    """Return an index of ids, long texts, objects and lists, which nobody repeats by chance."""
    index = OutputIndex(min_text_length=_MIN_OUTPUT_TEXT_LENGTH)
    # All ids before all properties: an output with an id refers to the resource itself, not to
    # another resource's property.
    for reference, entry in entries:
        index.add(reference, entry.id)
    for reference, entry in entries:
        for name, value in _order_outputs(entry).items():
            index.add(replace(reference, steps=(name,)), value)
    return index


def _order_outputs(entry: ResourceState) -> PropertyMap:
    """Return the outputs, the platform's own first, then the declared ones.

    Outputs other than properties of the resource's type are left out.
    """
    lifecycle = find_lifecycle(entry.type)
    names = lifecycle.list_property_names() if lifecycle else ()
    outputs = {key: value for key, value in entry.outputs.items() if key in names}
    # A value that a user declared twice is a literal in both places: the platform's own outputs are
    # preferred as references.
    return dict(sorted(outputs.items(), key=lambda item: item[0] in entry.inputs))


def _find_secret_texts(entries: Sequence[ResourceState]) -> set[str]:
    """Return the texts in secrets, without texts also found as public values."""
    values = [properties for entry in entries for properties in (entry.inputs, entry.outputs)]
    # A secret object also has texts that are public elsewhere, such as a region.
    secret_texts = {text for value in values for text in find_texts(value, secret=True)}
    return secret_texts - {text for value in values for text in find_texts(value, secret=False)}


_REQUEST_FIELDS: Final = (
    *("urn", "type", "inputs", "parent", "dependencies"),
    *("additional_secret_outputs", "source_position", "stack_trace"),
)
_REGISTRATION_FIELDS: Final = (
    *("property_dependencies", "ignore_changes", "replace_on_changes", "custom_timeouts"),
    *("hide_diff", "deleted_with", "replace_with", "replacement_trigger"),
)


def _to_request(entry: ResourceState) -> Registration | Read:
    """Return the request with which a program would have registered the resource."""
    # An external resource was read, not created.
    if entry.external:
        return Read(id=entry.id, **_copy_fields(entry, _REQUEST_FIELDS))
    return Registration(
        custom=entry.custom,
        # A state does not show whether a program declared False or nothing.
        protect=entry.protect or None,
        retain_on_delete=entry.retain_on_delete or None,
        **_copy_fields(entry, (*_REQUEST_FIELDS, *_REGISTRATION_FIELDS)),
    )


def _copy_fields(entry: ResourceState, names: Sequence[str]) -> dict[str, Any]:
    return {"name": name_of(entry.urn), **{name: getattr(entry, name) for name in names}}


def _create_unfinished_problem(entry: ResourceState) -> DocumentDiagnostic:
    """Build the problem of a resource whose old object is still to be deleted."""
    message = f"{name_of(entry.urn)} has an old object that is not deleted yet"
    return DocumentDiagnostic(
        SourcePosition(entry.urn, NOWHERE), "unfinished", message, "run `gpuform up` to delete it"
    )
