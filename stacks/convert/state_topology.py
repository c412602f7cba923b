"""A state as a topology: its inputs, with outputs of others where these have the same value."""

from collections.abc import Mapping, Sequence

from gpuform.stacks.authoring.declared import Declared, Reference
from gpuform.stacks.convert.declaring import Declaring, Registered, references_to
from gpuform.stacks.convert.matching import Index
from gpuform.stacks.convert.secret_values import NOWHERE, NotConverted, SecretValues, texts_in
from gpuform.stacks.document.diagnostics import Diagnostic, SourcePosition
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, name_of
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.lifecycles import lifecycle_of

_TELLING: int = 8
"""A text of an output is another resource's when it is as long as this; shorter ones repeat."""


def topology_of_state(
    entries: Sequence[ResourceState], secret_config: Mapping[str, str]
) -> tuple[Declared, Mapping[str, str]]:
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
            path = Reference(reference.section, reference.name, (name,))
            own.add(path, by_urn[urn].outputs.get(name))
        return [own.before(every)]

    declaring = Declaring(named, indexes, output_indexes, secrets, problems)
    outputs = next((entry.outputs for entry in live if entry.type == STACK_TYPE), {})
    declared = declaring.declared(Registered([[each] for each in asked], [outputs]))
    if problems:
        raise NotConverted(problems)
    return declared, secrets.wanted


def _index(entries: Sequence[tuple[Reference, ResourceState]]) -> Index:
    index = Index()
    for reference, entry in entries:
        index.add(reference, entry.id)
        for name, value in _outputs(entry).items():
            index.add(Reference(reference.section, reference.name, (name,)), value)
    return index


def _telling(entries: Sequence[tuple[Reference, ResourceState]]) -> Index:
    """What nobody would write twice by chance: ids, long texts, objects and lists."""
    index = Index(shortest=_TELLING)
    for reference, entry in entries:
        index.add(reference, entry.id)
    for reference, entry in entries:
        for name, value in _outputs(entry).items():
            index.add(Reference(reference.section, reference.name, (name,)), value)
    return index


def _outputs(entry: ResourceState) -> PropertyMap:
    """What the platform says first, then what was declared."""
    lifecycle = lifecycle_of(entry.type)
    names = lifecycle.property_names() if lifecycle else ()
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
