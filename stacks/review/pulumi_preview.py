"""Build a plan from the document that `pulumi preview --json` or `gpuform preview --json` prints.

Property changes and reasons come from the engine's own rules. Facts that the document lacks are
listed as unchecked. The document does not name its operation: it is inferred from the steps. A
value is masked if Pulumi marks it as secret, if it is masked already, or if gpuform's schema says
that it is secret. Nothing of the document runs: the pickled provider is not unpickled.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.values import (
    SECRET_SIGNATURE,
    SIGNATURE_KEY,
    PropertyMap,
    Secret,
    contains_secret,
)
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.checking import KEY_PROBLEM_PREFIXES, validate_inputs
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.safe_text import MASK
from gpuform.schemas.values import UNKNOWN, convert_leaves, is_secret_object
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.dynamic_providers import to_plain, to_provider
from gpuform.stacks.engine.planning import Op, describe_change, describe_drift
from gpuform.stacks.engine.provider_host import Diff
from gpuform.stacks.engine.state import ResourceState, decode_resource
from gpuform.stacks.engine.urn import STACK_TYPE, is_noise, is_urn, name_of, type_of
from gpuform.stacks.engine.value_json import MaskingCrypter
from gpuform.stacks.pricing import compute_current_usage, compute_planned_usage
from gpuform.stacks.resource_rules import find_kind
from gpuform.stacks.review.value_text import PROVIDER_PROPERTY, counted

_RESOURCE_FIELDS: Final = (
    *("urn", "type", "custom", "id", "protect", "retainOnDelete", "initErrors"),
    "additionalSecretOutputs",
)
"""The fields of a resource that a review needs, beside its properties."""

_MASKED_SECRET: Final = {SIGNATURE_KEY: SECRET_SIGNATURE, "ciphertext": MASK}


def decode_masked_resource(document: Mapping[str, Any]) -> ResourceState:
    """Decode a resource without secrets.

    Raises StateError for another format than Pulumi's. Only the properties and `_RESOURCE_FIELDS`
    are decoded; other fields are dropped.
    """
    values = {name: _mask_secrets(document.get(name) or {}) for name in ("inputs", "outputs")}
    plain = {name: document[name] for name in _RESOURCE_FIELDS if name in document}
    resource = decode_resource({**plain, **values}, MaskingCrypter())
    # gpuform's schema knows secrets that the document may not mark.
    secret = {*resource.additional_secret_outputs, *_list_secret_names(resource.type)}
    resource.inputs = _replace_secrets(resource.inputs, secret)
    resource.outputs = _replace_secrets(resource.outputs, secret)
    return resource


def list_secret_properties(properties: PropertyMap) -> set[str]:
    """Return the names of secret properties, and of properties with a secret inside."""
    return {name for name, value in properties.items() if contains_secret(value)}


def _mask_secrets(value: Any) -> Any:
    """Replace every secret and every mask in a JSON value, at any depth, by a masked secret."""
    # A document that is masked already has lost the marks of its secrets.
    return convert_leaves(
        value,
        lambda leaf: _MASKED_SECRET if isinstance(leaf, dict) or leaf == MASK else leaf,
        is_secret_object,
    )


def _list_secret_names(type_: str) -> set[str]:
    """Return the names of secret properties of a gpuform type; empty for other types."""
    kind = find_kind(type_)
    if kind is None:
        return set()
    lifecycle = load_lifecycle_class(*kind)
    rules = get_field_rules(lifecycle.inputs)
    return {*lifecycle.list_secret_names(), *(name for name in rules if rules[name].holds_secret)}


def _replace_secrets(properties: PropertyMap, secret: set[str]) -> PropertyMap:
    """Return the properties, with a masked secret for each name in `secret`."""
    return {name: Secret(MASK) if name in secret else value for name, value in properties.items()}


_OPS: Final = {
    **{str(op): op for op in (Op.SAME, Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.IMPORT)},
    **dict.fromkeys(
        ("replace", "create-replacement", "delete-replaced", "import-replacement"), Op.REPLACE
    ),
}
_PREVIEW_KEYS: Final = ("steps", "changeSummary", "duration", "diagnostics", "maybeCorrupt")
_REFRESH: Final = "refresh"
_IGNORED_OPS: Final = (_REFRESH, "remove-pending-replace", "discard", "discard-replaced")
_OUTPUTS_UNKNOWN: Final = (
    "changes of the stack's outputs: the JSON of a preview does not contain them"
)
_UNCHECKED_PREFIX: Final = "not checked: "
_ERROR_PREFIX: Final = "error: "
_GENERIC_ERRORS: Final = ("preview failed", "update failed")
"""Pulumi's last message after any failure; a more specific error replaces it."""
_AMBIGUOUS_OPERATION: Final = (
    "the command of this preview: the JSON of `up` and of a partial `destroy` has the same "
    "form. gpuform assumes `up`; a `destroy` would also delete resources that the program "
    "declares"
)


_NAME_PROBLEM_PREFIXES: Final = (*KEY_PROBLEM_PREFIXES, "is required")
"""Beginnings of problems that are about a missing or unknown name, not about a value."""


@dataclass(slots=True)
class _Step:
    """Hold everything that the document says about one resource."""

    op: Op
    old: ResourceState | None
    new: ResourceState | None
    replaces: Sequence[str]
    changed: Sequence[str]


@dataclass(frozen=True, slots=True)
class Preview:
    """Hold a preview's document, with the facts of its event form.

    `failed`: the run of an event log did not succeed. `is_applied`: the document is of a run, not
    of a preview. `refreshes` and `runs_program` are None for a document that is not an event log:
    whether the run only refreshes, and whether the program ran to its end.
    """

    document: Mapping[str, Any]
    failed: bool = False
    is_applied: bool = False
    refreshes: bool | None = None
    runs_program: bool | None = None

    @property
    def steps(self) -> Sequence[Any]:
        """Return the entries of `steps`, unchecked; empty without a list of steps."""
        steps = self.document.get("steps")
        return steps if isinstance(steps, list) else []

    @property
    def errors(self) -> tuple[str, ...]:
        """Return the errors of the preview; empty after a success.

        Pulumi's general message is left out beside specific ones. A failure without a message gets
        one.
        """
        errors = [*_list_errors(self.document)]
        specific_errors = [message for message in errors if message not in _GENERIC_ERRORS]
        # A cancelled run may leave no message.
        if self.failed and not errors:
            return ("the preview failed or was cancelled, without an error message",)
        return tuple(specific_errors or errors)

    def count_resources(self, *ops: str) -> int:
        """Count the resources of the document's summary under `ops`."""
        summary = self.document.get("changeSummary")
        counts = [summary.get(op) for op in ops] if isinstance(summary, dict) else []
        return sum(count for count in counts if isinstance(count, int))


class _GpuCounter:
    """Count GPUs from a resource's type and inputs alone."""

    def count_gpus(self, resource: ResourceState) -> int | None:
        """Return the number of GPUs; 0 for other types than gpuform's, None if unknown."""
        kind = find_kind(resource.type)
        return (
            load_lifecycle_class(*kind).hooks.count_gpus(to_plain(resource.inputs)) if kind else 0
        )


def is_preview(document: Mapping[str, Any]) -> bool:
    """Return True if a JSON object has the form of a preview."""
    # gpuform's own plans have a format_version.
    return "format_version" not in document and any(key in document for key in _PREVIEW_KEYS)


def build_plan(name: str, preview: Preview) -> Plan:
    """Build the plan of a preview. Raises EngineError for an invalid step, or without any step.

    An ambiguous operation counts as an update, which is listed as unchecked. The plan of an
    applied run has no changes.
    """
    steps: dict[str, _Step] = {}
    ops: dict[str, list[str]] = {}
    notes: list[str] = []
    stack, project = "", ""
    for at, entry in enumerate(preview.steps):
        where = f"{name} is not a preview: steps.{at}"
        if not isinstance(entry, dict) or not is_urn(str(entry.get("urn"))):
            raise EngineError(f"{where}.urn is not the name of a resource")
        urn, op = str(entry["urn"]), str(entry.get("op"))
        # Operations that change nothing still show which command the document is of.
        ops.setdefault(urn, []).append(op)
        stack, project = urn.removeprefix("urn:pulumi:").split("::")[:2]
        if op in _OPS:
            _merge_step(steps, urn, _parse_step(where, entry, _OPS[op]))
        elif op not in _IGNORED_OPS:
            notes.append(f"{name_of(urn)}: Pulumi's operation {op} is unknown to gpuform")
    if not ops:
        failure = "".join(f"; it has failed: {message}" for message in preview.errors)
        raise EngineError(
            f"{name} has no steps, so it contains neither a stack nor a plan{failure}",
            "" if failure else "the stack is empty",
        )
    operation = _infer_operation(preview, ops, steps)
    if operation is None:
        operation = "update"
        notes.append(_AMBIGUOUS_OPERATION)
    if preview.is_applied:
        # The steps of a run that failed were applied: nothing of them is planned.
        steps.clear()
    resource_steps = {urn: step for urn, step in steps.items() if not is_noise(type_of(urn))}
    notes += [
        note
        for urn in sorted(resource_steps)
        for note in _list_step_notes(name_of(urn), resource_steps[urn])
    ]
    changes = [
        _build_drift_change(step) if operation == "refresh" else _build_change(step)
        for step in resource_steps.values()
        if step.old or step.new
    ]
    # The steps of a destroy and of removed declarations look alike.
    if operation == "destroy":
        changes = [entry.model_copy(update={"reason": PlanReason.DESTROYED}) for entry in changes]
    plan = Plan.from_changes(project, stack, changes)
    summary, summary_notes = _count_actions(preview, plan, ops, operation)
    notes += [*summary_notes, *_list_unchecked(preview.document), _OUTPUTS_UNKNOWN]
    return plan.model_copy(
        update={
            "operation": operation,
            "errors": preview.errors,
            "summary": summary,
            "unchecked": tuple(notes),
        }
    )


def _infer_operation(
    preview: Preview, ops: Mapping[str, Sequence[str]], steps: Mapping[str, _Step]
) -> str | None:
    """Infer the operation (update, destroy, refresh) from the steps; None if ambiguous."""
    stack_ops = next(
        (resource_ops for urn, resource_ops in ops.items() if type_of(urn) == STACK_TYPE), None
    )
    if stack_ops is not None and Op.DELETE in stack_ops:
        return "destroy"  # no update deletes the stack's own entry
    is_refresh = preview.refreshes
    if is_refresh is None:
        # A resource that is refreshed ahead of another operation has two steps.
        is_refresh = any(_REFRESH in resource_ops for resource_ops in ops.values()) and all(
            len(resource_ops) == 1 for resource_ops in ops.values()
        )
    if is_refresh:
        return "refresh"
    changed = {op for resource_ops in ops.values() for op in resource_ops} - {Op.SAME, _REFRESH}
    if changed != {Op.DELETE}:
        return "update"
    if stack_ops is None:
        # A refresh of a part of a stack has no step of the stack's own, and neither has a
        # refused destroy; a destroy of a part has one.
        if preview.refreshes is False or preview.errors:
            return "destroy"
        return "refresh" if "changeSummary" in preview.document else None
    if preview.runs_program is not None and not preview.errors:
        return "update" if preview.runs_program else "destroy"
    stack = next(step for urn, step in steps.items() if type_of(urn) == STACK_TYPE)
    if not (stack.old and stack.new and stack.old.outputs):
        return None
    # The program's run begins without outputs.
    return "destroy" if stack.new.outputs else "update"


def _count_actions(
    preview: Preview, plan: Plan, ops: Mapping[str, Sequence[str]], operation: str
) -> tuple[Mapping[PlanAction, int], list[str]]:
    """Return the counts by action of a preview, and notes about resources counted but not listed.

    Only a refresh has such resources. After an applied run the plan's own counts are returned.
    """
    if preview.is_applied:
        return plan.summary, []
    stack_ops = [
        op for urn, resource_ops in ops.items() if type_of(urn) == STACK_TYPE for op in resource_ops
    ]
    is_same = Op.SAME in stack_ops or (operation == "refresh" and _REFRESH in stack_ops)
    # Pulumi counts the stack's own entry, which a plan leaves out.
    same = max(plan.summary.get(PlanAction.SAME, 0), preview.count_resources(Op.SAME) - is_same)
    summary = {**plan.summary, **({PlanAction.SAME: same} if same else {})}
    if operation != "refresh":
        return summary, []
    listed_updates = plan.summary.get(PlanAction.UPDATE, 0)
    unlisted_updates = preview.count_resources(Op.UPDATE) - listed_updates
    if unlisted_updates <= 0:
        return summary, []
    summary[PlanAction.UPDATE] = listed_updates + unlisted_updates
    note = (
        f"which {counted(unlisted_updates, 'resource')} changed outside: the JSON only counts "
        "resources without property-level differences; `--event-log FILE` names them"
    )
    return summary, [note]


def _build_drift_change(step: _Step) -> ResourceChange:
    """Build the change of a drifted resource, as the engine describes drift."""
    old, new = step.old or step.new, None if step.op is Op.DELETE else step.new
    if old is None:
        raise AssertionError("a step has an old or a new state")
    fields = (
        # Drift is a difference between outputs: the new ones stand in place of inputs.
        None if new is None else _list_field_changes(step, replace(new, inputs=new.outputs), old)
    )
    diff = Diff(step.op is Op.UPDATE, (), delete_before_replace=False, fields=fields)
    change = describe_drift(_GpuCounter(), old, new, diff)
    return change.model_copy(
        update={
            "before": compute_current_usage(old),
            "after": compute_planned_usage(new, new) if new else None,
        }
    )


def _parse_step(where: str, entry: Mapping[str, Any], op: Op) -> _Step:
    """Parse a step of a preview, secrets masked. Raises EngineError that begins with `where`."""
    states: dict[str, ResourceState | None] = {}
    for key in ("oldState", "newState"):
        state = entry.get(key)
        if state is not None and not isinstance(state, dict):
            raise EngineError(f"{where}.{key} is not an object")
        try:
            states[key] = decode_masked_resource(state) if state else None
        except EngineError as error:
            raise EngineError(f"{where}.{key}: {error.message}") from None
    detailed = entry.get("detailedDiff")
    details = detailed if isinstance(detailed, dict) else {}
    # Pulumi's kinds are `add`, `add-replace`, `delete-replace` and so on.
    forced = [
        path
        for path, kind in details.items()
        if isinstance(kind, dict) and str(kind.get("kind")).endswith("-replace")
    ]
    replaces = [*_select_texts(entry.get("replaceReasons")), *forced]
    changed = [*replaces, *_select_texts(entry.get("diffReasons")), *details]
    roots, changed_roots = map(property_paths.list_roots, (replaces, changed))
    return _Step(op, states["oldState"], states["newState"], roots, changed_roots)


def _select_texts(value: Any) -> list[str]:
    """Return the texts in a JSON list, without other items; empty for any other value."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _merge_step(steps: dict[str, _Step], urn: str, step: _Step) -> None:
    """Merge a step into the change of a resource: a replacement has up to three steps."""
    merged = steps.setdefault(urn, step)
    if merged is not step:
        merged.op = Op.REPLACE if Op.REPLACE in (merged.op, step.op) else step.op
        # The step that creates has the new state, the one that deletes the old state.
        merged.old, merged.new = merged.old or step.old, step.new or merged.new
        merged.replaces = list(dict.fromkeys([*merged.replaces, *step.replaces]))
        merged.changed = list(dict.fromkeys([*merged.changed, *step.changed]))


def _build_change(step: _Step) -> ResourceChange:
    """Build the planned change of a step, with the resource usage before and after.

    The usage is None for a resource that the program only reads.
    """
    fields = None
    if step.op in (Op.UPDATE, Op.REPLACE) and step.old and step.new:
        fields = _list_field_changes(step, step.old, step.new)
    diff = Diff(True, step.replaces, delete_before_replace=False, fields=fields)
    change = describe_change(_GpuCounter(), step.op, step.old, step.new, diff)
    old, new = step.old, None if step.op is Op.DELETE else step.new
    observed = old if step.op in (Op.SAME, Op.UPDATE) else None
    # A resource that the program only reads is not the stack's cost.
    is_owned = step.op is not Op.READ
    return change.model_copy(
        update={
            "before": compute_current_usage(old) if old and is_owned else None,
            "after": compute_planned_usage(new, observed) if new and is_owned else None,
        }
    )


def _list_field_changes(
    step: _Step, old: ResourceState, new: ResourceState
) -> list[FieldChange] | None:
    """List the field changes by gpuform's own rules; None for other types and invalid values."""
    kind = find_kind(new.type)
    if kind is None:
        return None
    hidden = (
        list_secret_properties(old.outputs)
        | list_secret_properties(old.inputs)
        | list_secret_properties(new.inputs)
    )
    before = {key: value for key, value in old.outputs.items() if key not in hidden}
    after = {key: value for key, value in new.inputs.items() if key not in hidden}
    lifecycle = load_lifecycle_class(*kind)
    secret = dict.fromkeys((hidden & new.inputs.keys()) - {PROVIDER_PROPERTY}, UNKNOWN)
    try:
        # Nothing has checked the document's values: a count may be beyond all bounds.
        problems = validate_inputs(lifecycle.inputs, to_plain(new.inputs) | secret)[1]
        if not all(problem.reason.startswith(_NAME_PROBLEM_PREFIXES) for problem in problems):
            return None
        field_changes = lifecycle().list_changes(to_provider(before), to_provider(after))
    except Exception:  # noqa: BLE001 - as above
        return None
    return [*field_changes, *_list_secret_changes(step, old, new, hidden)]


def _list_secret_changes(
    step: _Step, old: ResourceState, new: ResourceState, hidden: set[str]
) -> Iterator[FieldChange]:
    """Yield the changes of secrets: set, removed, or listed as changed by the document."""
    for key in sorted(hidden):
        was_set, is_set = key in old.inputs, key in new.inputs
        if (was_set or is_set) and (was_set is not is_set or key in step.changed):
            action = (
                Action.UPDATE if was_set and is_set else Action.ADD if is_set else Action.DELETE
            )
            before, after = ("?" if was_set else None), ("?" if is_set else None)
            # Masked values are equal: only the document's lists say that a secret changes.
            forces = key in step.replaces
            yield FieldChange(key, action, before, after, replaces=forces, secret=True)


def _list_step_notes(name: str, step: _Step) -> Iterator[str]:
    """Yield notes about hidden facts of a resource, and about a deletion Pulumi will refuse."""
    if step.op in (Op.UPDATE, Op.REPLACE) and step.old and step.new:
        both = list_secret_properties(step.old.inputs) & list_secret_properties(step.new.inputs)
        hidden_names = sorted(both - {*step.changed, PROVIDER_PROPERTY})
        if hidden_names:
            listed = ", ".join(hidden_names)
            yield f"{name}: whether {listed} changes cannot be seen: the document masks secrets"
    if step.op in (Op.DELETE, Op.REPLACE) and step.old and step.old.protect:
        yield f"{name} is protected: Pulumi will refuse to delete it"


def _list_errors(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the error messages of the preview, each with the name of the resource."""
    for diagnostic in _list_diagnostics(document):
        message, urn = str(diagnostic.get("message", "")).strip(), str(diagnostic.get("urn", ""))
        if diagnostic.get("severity") == "error" and message:
            about = f"{name_of(urn)}: " if is_urn(urn) else ""
            yield f"{about}{message.removeprefix(_ERROR_PREFIX)}"


def _list_unchecked(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the skipped checks, which gpuform's provider reports as messages."""
    for diagnostic in _list_diagnostics(document):
        message = str(diagnostic.get("message", "")).strip()
        if message.startswith(_UNCHECKED_PREFIX):
            yield message.removeprefix(_UNCHECKED_PREFIX)


def _list_diagnostics(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the diagnostics in a preview document; anything malformed is left out."""
    diagnostics = document.get("diagnostics")
    return (
        [item for item in diagnostics if isinstance(item, dict)]
        if isinstance(diagnostics, list)
        else []
    )
