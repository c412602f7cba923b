"""A Python program as a topology: it is run twice, with outputs that can be told from all else.

What is the same in both runs is meant as it is, what is an output in both refers to it, and what
differs in any other way was computed. Nothing is changed, and platforms are only asked what the
program itself asks them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuform.providers.catalog import lifecycle_class
from gpuform.stacks.authoring.declared import ConfigValue, Declared, Reference, variables_in
from gpuform.stacks.convert.declaring import (
    Asked,
    Declaring,
    Registered,
    problem_of,
    references_to,
)
from gpuform.stacks.convert.matching import Index, Marks, marks_of_runs
from gpuform.stacks.convert.secret_values import NotConverted, SecretValues
from gpuform.stacks.document.diagnostics import Diagnostic
from gpuform.stacks.engine.language_host import Program, Recorded, record
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.engine.values import PropertyMap, Secret
from gpuform.stacks.lifecycles import kind_of
from gpuform.stacks.review.outputs_text import shown
from gpuform.stacks.topology_runner import run_topology


def topology_of_program(
    program: Program, entries: Sequence[ResourceState]
) -> tuple[Declared, Mapping[str, str]]:
    """The topology of a program, and the secret values that its stack has to keep.

    `entries` are those of the stack's state, whose outputs have the shape that the program expects.
    Raises NotConverted, and ProgramError for what the program raises.
    """
    shapes = {entry.urn: shown(entry.outputs) for entry in entries if not entry.delete}
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
    return Declared(declared.entries, secrets.variables(), declared.outputs), secrets.wanted


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
        lifecycle = lifecycle_class(*kind)
        fields = {**lifecycle.inputs.model_fields, **lifecycle.outputs.model_fields}
        secret = {*lifecycle.secret_names(), *asked.additional_secret_outputs}
        found: PropertyMap = {}
        for name in lifecycle.property_names():
            like = known.get(name)
            value = (
                self.marks.like(like)
                if like is not None
                else self.marks.typed(fields[name].annotation)
            )
            found[name] = Secret(value) if name in secret else value
        return found

    def index(self, named: Mapping[str, Reference]) -> Index:
        index = Index(self.marks.pattern)
        for key, mark in self.config.items():
            index.add(ConfigValue(key.partition(":")[2]), mark, is_secret=True)
        for urn, reference in named.items():
            id_, outputs = self.answers.get(urn, ("", {}))
            index.add(reference, id_)
            index.add(Reference(reference.section, reference.name, ("urn",)), urn)
            for name, value in outputs.items():
                index.add(Reference(reference.section, reference.name, (name,)), value)
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


def _config_in(declared: Declared) -> Iterator[str]:
    """The configuration values that are referred to."""
    said = [
        dict(declared.outputs),
        *([dict(e.properties), dict(e.options)] for e in declared.entries),
    ]
    return (each.name for each in variables_in(said))
