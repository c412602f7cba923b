"""Convert a Python program, or a state, to a topology.

What is the same in both runs is meant as it is, what is an output in both refers to it, and what
differs in any other way was computed. Nothing is changed, and platforms are only asked what the
program itself asks them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.stacks.convert.declaring import (
    Asked,
    Declaring,
    Registered,
    problem_of,
    references_to,
)
from gpuform.stacks.convert.matching import Index, Marks, marks_of_runs
from gpuform.stacks.convert.registered_options import NOWHERE, NotConverted, SecretValues, texts_in
from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    Declarations,
    ResourceReference,
    find_config_references,
)
from gpuform.stacks.document.diagnostics import Diagnostic, SourcePosition
from gpuform.stacks.engine.language_host import Program, Recorded, record
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, name_of
from gpuform.stacks.engine.values import PropertyMap, Secret
from gpuform.stacks.resource_rules import kind_of, lifecycle_of
from gpuform.stacks.review.value_text import to_display_value
from gpuform.stacks.topology_runner import run_topology


def topology_of_program(
    program: Program, entries: Sequence[ResourceState]
) -> tuple[Declarations, Mapping[str, str]]:
    """The topology of a program, and the secret values that its stack has to keep.

    `entries` are those of the stack's state, whose outputs have the shape that the program expects.
    Raises NotConverted, and ProgramError for what the program raises.
    """
    shapes = {entry.urn: to_display_value(entry.outputs) for entry in entries if not entry.delete}
    runs = [_Run(program, shapes, marks) for marks in marks_of_runs()]
    recorded = [run.go() for run in runs]
    problems: list[Diagnostic] = []
    pairs = _paired(recorded, problems)
    named = references_to([each[0] for each in pairs], problems)
    secrets = SecretValues(runs[0].typed)
    indexes = [run.index(named) for run in runs]
    declaring = Declaring(named, lambda _: indexes, lambda _: indexes, secrets, problems)
    declared = declaring.declared(Registered(pairs, [each.outputs for each in recorded]))
    for name in _config_in(declared):
        secrets.use(name)
    if problems:
        raise NotConverted(problems)
    return Declarations(declared.entries, secrets.variables(), declared.outputs), secrets.wanted


@dataclass(slots=True)
class _Run:
    program: Program
    shapes: Mapping[str, PropertyMap]
    marks: Marks
    answers: dict[str, tuple[str, PropertyMap]] = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    typed: dict[str, str] = field(default_factory=dict)
    """Secrets of the configuration that stay as they are: by value, the key."""

    def go(self) -> Recorded:
        prefix = f"{self.program.project}:"
        own = (key for key in self.program.secret_keys if key.startswith(prefix))
        # A number has to stay one, for the program reads it as such.
        for key in own:
            text = self.program.config[key]
            if _is_typed(text):
                self.typed[text] = key.partition(":")[2]
            else:
                self.config[key] = self.marks.text()
        config = {**self.program.config, **self.config}
        return record(self.program, self.answer, config, run_topology)

    def answer(self, asked: Asked) -> tuple[str, PropertyMap]:
        """The id and outputs of a resource: each a mark, in the shape that they have."""
        if asked.urn not in self.answers:
            kind = kind_of(asked.type)
            id_ = self.marks.text()
            outputs = self.outputs(kind, self.shapes.get(asked.urn, {}), asked) if kind else {}
            self.answers[asked.urn] = (id_, outputs)
        return self.answers[asked.urn]

    def outputs(self, kind: tuple[str, str], known: PropertyMap, asked: Asked) -> PropertyMap:
        lifecycle = load_lifecycle_class(*kind)
        fields = {**lifecycle.inputs.model_fields, **lifecycle.outputs.model_fields}
        secret = {*lifecycle.list_secret_names(), *asked.additional_secret_outputs}
        found: PropertyMap = {}
        for name in lifecycle.list_property_names():
            like = known.get(name)
            value = (
                self.marks.like(like)
                if like is not None
                else self.marks.typed(fields[name].annotation)
            )
            found[name] = Secret(value) if name in secret else value
        return found

    def index(self, named: Mapping[str, ResourceReference]) -> Index:
        index = Index(self.marks.pattern)
        for key, mark in self.config.items():
            index.add(ConfigReference(key.partition(":")[2]), mark, is_secret=True)
        for urn, reference in named.items():
            id_, outputs = self.answers.get(urn, ("", {}))
            index.add(reference, id_)
            index.add(ResourceReference(reference.section, reference.name, ("urn",)), urn)
            for name, value in outputs.items():
                index.add(ResourceReference(reference.section, reference.name, (name,)), value)
        return index


def _is_typed(text: str) -> bool:
    """Whether a secret may be read as something else than text."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _paired(recorded: Sequence[Recorded], problems: list[Diagnostic]) -> list[tuple[Asked, ...]]:
    """What both runs have declared, resource by resource."""
    by_urn = [
        {each.urn: each for each in run.declared if each.type != STACK_TYPE} for run in recorded
    ]
    first, *others = by_urn
    for other in others:
        for urn in sorted({*first} ^ {*other}):
            asked = first.get(urn) or other[urn]
            message = f"whether {asked.name} is declared depends on outputs"
            problems.append(problem_of(asked, "computed", message, "declare it in any case"))
        both = [urn for urn in first if urn in other]
        for urn in (urn for urn in both if type(first[urn]) is not type(other[urn])):
            message = f"how {first[urn].name} is declared depends on outputs"
            problems.append(problem_of(first[urn], "computed", message))
    common = [urn for urn in first if all(urn in other for other in others)]
    return [tuple(run[urn] for run in by_urn) for urn in common]


def _config_in(declared: Declarations) -> Iterator[str]:
    """The configuration values that are referred to."""
    said = [
        dict(declared.outputs),
        *([dict(e.properties), dict(e.options)] for e in declared.entries),
    ]
    return (each.name for each in find_config_references(said))


_TELLING: int = 8
"""A text of an output is another resource's when it is as long as this; shorter ones repeat."""


def topology_of_state(
    entries: Sequence[ResourceState], secret_config: Mapping[str, str]
) -> tuple[Declarations, Mapping[str, str]]:
    """The topology of a state that is read with its secrets, and those that the stack has to keep.

    `secret_config` are the secrets of its configuration, by value. Raises NotConverted.
    """
    problems = [
        _unfinished(entry) for entry in entries if entry.delete or entry.pending_replacement
    ]
    live = [e for e in entries if not (e.delete or e.pending_replacement or is_provider(e.type))]
    asked = [_asked(entry) for entry in live]
    named = references_to(asked, problems)
    by_urn = {entry.urn: entry for entry in live}
    secrets = SecretValues(secret_config, _only_secret(live))

    def indexes(needed: Sequence[str]) -> list[Index]:
        return [_index([(named[u], by_urn[u]) for u in needed if u in named and u in by_urn])]

    every = _telling([(named[entry.urn], entry) for entry in live if entry.urn in named])

    def output_indexes(name: str) -> list[Index]:
        own = Index()
        for urn, reference in named.items():
            path = ResourceReference(reference.section, reference.name, (name,))
            own.add(path, by_urn[urn].outputs.get(name))
        return [own.before(every)]

    declaring = Declaring(named, indexes, output_indexes, secrets, problems)
    outputs = next((entry.outputs for entry in live if entry.type == STACK_TYPE), {})
    declared = declaring.declared(Registered([[each] for each in asked], [outputs]))
    if problems:
        raise NotConverted(problems)
    return declared, secrets.wanted


def _index(entries: Sequence[tuple[ResourceReference, ResourceState]]) -> Index:
    index = Index()
    for reference, entry in entries:
        index.add(reference, entry.id)
        for name, value in _outputs(entry).items():
            index.add(ResourceReference(reference.section, reference.name, (name,)), value)
    return index


def _telling(entries: Sequence[tuple[ResourceReference, ResourceState]]) -> Index:
    """What nobody would write twice by chance: ids, long texts, objects and lists."""
    index = Index(shortest=_TELLING)
    for reference, entry in entries:
        index.add(reference, entry.id)
    for reference, entry in entries:
        for name, value in _outputs(entry).items():
            index.add(ResourceReference(reference.section, reference.name, (name,)), value)
    return index


def _outputs(entry: ResourceState) -> PropertyMap:
    """What the platform says first, then what was declared."""
    lifecycle = lifecycle_of(entry.type)
    names = lifecycle.list_property_names() if lifecycle else ()
    told = {key: value for key, value in entry.outputs.items() if key in names}
    return dict(sorted(told.items(), key=lambda each: each[0] in entry.inputs))


def _only_secret(entries: Sequence[ResourceState]) -> set[str]:
    """The texts that are secrets, and nowhere in the clear as they are."""
    values = [part for entry in entries for part in (entry.inputs, entry.outputs)]
    hidden = {text for value in values for text in texts_in(value, secret=True)}
    return hidden - {text for value in values for text in texts_in(value, secret=False)}


def _asked(entry: ResourceState) -> Registration | Read:
    """As a program would have registered it."""
    if entry.external:
        return Read(
            urn=entry.urn,
            type=entry.type,
            name=name_of(entry.urn),
            id=entry.id,
            inputs=entry.inputs,
            parent=entry.parent,
            dependencies=entry.dependencies,
            additional_secret_outputs=entry.additional_secret_outputs,
            source_position=entry.source_position,
            stack_trace=entry.stack_trace,
        )
    return Registration(
        urn=entry.urn,
        type=entry.type,
        name=name_of(entry.urn),
        custom=entry.custom,
        inputs=entry.inputs,
        parent=entry.parent,
        dependencies=entry.dependencies,
        property_dependencies=entry.property_dependencies,
        protect=entry.protect or None,
        retain_on_delete=entry.retain_on_delete or None,
        ignore_changes=entry.ignore_changes,
        replace_on_changes=entry.replace_on_changes,
        additional_secret_outputs=entry.additional_secret_outputs,
        custom_timeouts=entry.custom_timeouts,
        source_position=entry.source_position,
        stack_trace=entry.stack_trace,
        hide_diff=entry.hide_diff,
        deleted_with=entry.deleted_with,
        replace_with=entry.replace_with,
        replacement_trigger=entry.replacement_trigger,
    )


def _unfinished(entry: ResourceState) -> Diagnostic:
    message = f"{name_of(entry.urn)} has an old object that waits for its deletion"
    return Diagnostic(
        SourcePosition(entry.urn, NOWHERE), "unfinished", message, "finish it: `gpuform up`"
    )
