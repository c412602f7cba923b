"""The plan in what `pulumi preview --json` or `gpuform preview --json` prints.

Property changes and reasons are made as the engine makes them; what the document does not tell is
said among what was not checked. No such document names its operation: its steps tell it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.properties import to_properties
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.checking import KEY_PROBLEM_PREFIXES, validate_inputs
from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import Op, describe, describe_drift
from gpuform.stacks.engine.provider_host import Diff, to_provider
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE, is_noise, is_urn, name_of, type_of
from gpuform.stacks.engine.values import property_paths
from gpuform.stacks.pricing.footprints import footprint_now, footprint_then
from gpuform.stacks.resource_rules import kind_of
from gpuform.stacks.review.previews.masking import masked_resource, secrets_of
from gpuform.stacks.review.value_text import PROVIDER_PROPERTY, counted

_OPS: Final = {
    **{str(op): op for op in (Op.SAME, Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.IMPORT)},
    **dict.fromkeys(
        ("replace", "create-replacement", "delete-replaced", "import-replacement"), Op.REPLACE
    ),
}
_OF_PREVIEWS: Final = ("steps", "changeSummary", "duration", "diagnostics", "maybeCorrupt")
_REFRESH: Final = "refresh"
_SILENT: Final = (_REFRESH, "remove-pending-replace", "discard", "discard-replaced")
_NOT_TOLD: Final = "changes of the stack's outputs: the document of a preview does not tell them"
_NOTE: Final = "not checked: "
_ERROR: Final = "error: "
_CLOSING: Final = ("preview failed", "update failed")
"""What Pulumi says at last, whatever has failed."""
_DELETED_BY_WHOM: Final = (
    "which command this is a preview of: the document tells `up` and a `destroy` of a part alike. "
    "It is taken for `up`; a `destroy` would delete what the program may still have"
)


_ABOUT_NAMES: Final = (*KEY_PROBLEM_PREFIXES, "is required")
"""How the reasons of problems begin that are about no value."""


@dataclass(slots=True)
class _Step:
    """All that is told of one resource."""

    op: Op
    old: ResourceState | None
    new: ResourceState | None
    replaces: Sequence[str]
    changed: Sequence[str]


@dataclass(frozen=True, slots=True)
class Preview:
    """A preview's document, and what only another form of it knows.

    `failed` where it has failed without a word; `was_done` where it is no preview but a run. Of a
    log it is known whether it `refreshes` alone, and `runs_program`.
    """

    document: Mapping[str, Any]
    failed: bool = False
    was_done: bool = False
    refreshes: bool | None = None
    runs_program: bool | None = None

    @property
    def told(self) -> Sequence[Any]:
        """Its steps, whatever they are."""
        steps = self.document.get("steps")
        return steps if isinstance(steps, list) else []

    @property
    def errors(self) -> tuple[str, ...]:
        """What it has failed with; nothing where it has succeeded."""
        found = [*_errors(self.document)]
        named = [text for text in found if text not in _CLOSING]
        if self.failed and not found:
            return ("it has failed, or was cancelled, and does not tell why",)
        return tuple(named or found)

    def counted(self, *ops: str) -> int:
        """How many resources its summary counts under these operations."""
        summary = self.document.get("changeSummary")
        counts = [summary.get(op) for op in ops] if isinstance(summary, dict) else []
        return sum(count for count in counts if isinstance(count, int))


class _Counter:
    """Counts GPUs by type and inputs alone."""

    def gpus(self, resource: ResourceState) -> int | None:
        kind = kind_of(resource.type)
        return (
            load_lifecycle_class(*kind).count_gpus(to_properties(to_provider(resource.inputs)))
            if kind
            else 0
        )


def is_preview(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object has the form of a preview."""
    return "format_version" not in document and any(key in document for key in _OF_PREVIEWS)


def plan_of(name: str, preview: Preview) -> Plan:
    """The plan in a preview. Raises EngineError, which names the file and the place."""
    steps: dict[str, _Step] = {}
    ops: dict[str, list[str]] = {}
    notes: list[str] = []
    stack, project = "", ""
    for at, each in enumerate(preview.told):
        where = f"{name} is no preview: steps.{at}"
        if not isinstance(each, dict) or not is_urn(str(each.get("urn"))):
            raise EngineError(f"{where}.urn is not the name of a resource")
        urn, op = str(each["urn"]), str(each.get("op"))
        ops.setdefault(urn, []).append(op)
        stack, project = urn.removeprefix("urn:pulumi:").split("::")[:2]
        if op in _OPS:
            _merge(steps, urn, _step(where, each, _OPS[op]))
        elif op not in _SILENT:
            notes.append(f"{name_of(urn)}: what Pulumi's operation {op} does is not known here")
    if not ops:
        failed = "".join(f"; it has failed: {text}" for text in preview.errors)
        raise EngineError(
            f"{name} has no steps, so that it tells neither stack nor plan{failed}",
            "" if failed else "the stack is empty",
        )
    operation = _operation(preview, ops, steps)
    if operation is None:
        operation = "update"
        notes.append(_DELETED_BY_WHOM)
    if preview.was_done:
        steps.clear()
    found = {urn: step for urn, step in steps.items() if not is_noise(type_of(urn))}
    notes += [note for urn in sorted(found) for note in _notes(name_of(urn), found[urn])]
    changes = [
        _drift(step) if operation == "refresh" else _change(step)
        for step in found.values()
        if step.old or step.new
    ]
    if operation == "destroy":
        changes = [each.model_copy(update={"reason": PlanReason.DESTROYED}) for each in changes]
    plan = Plan.from_changes(project, stack, changes)
    summary, more = _summary(preview, plan, ops, operation)
    notes += [*more, *_unchecked(preview.document), _NOT_TOLD]
    return plan.model_copy(
        update={
            "operation": operation,
            "errors": preview.errors,
            "summary": summary,
            "unchecked": tuple(notes),
        }
    )


def _operation(
    preview: Preview, ops: Mapping[str, Sequence[str]], steps: Mapping[str, _Step]
) -> str | None:
    """Which operation the steps are of; None where they can be of more than one."""
    of_stack = next((told for urn, told in ops.items() if type_of(urn) == STACK_TYPE), None)
    if of_stack is not None and Op.DELETE in of_stack:
        return "destroy"  # no update deletes the stack's own entry
    is_refresh = preview.refreshes
    if is_refresh is None:
        # What is refreshed ahead of something else is told twice.
        is_refresh = any(_REFRESH in told for told in ops.values()) and all(
            len(told) == 1 for told in ops.values()
        )
    if is_refresh:
        return "refresh"
    changed = {op for told in ops.values() for op in told} - {Op.SAME, _REFRESH}
    if changed != {Op.DELETE}:
        return "update"
    if of_stack is None:
        # A part of a stack that is refreshed is told without it, and so is a destroy that is
        # refused; a destroy of a part is told with it.
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


def _summary(
    preview: Preview, plan: Plan, ops: Mapping[str, Sequence[str]], operation: str
) -> tuple[Mapping[PlanAction, int], list[str]]:
    """The counts, with what is counted and not told of each resource; and that it is not told."""
    if preview.was_done:
        return plan.summary, []
    of_stack = [op for urn, told in ops.items() if type_of(urn) == STACK_TYPE for op in told]
    is_same = Op.SAME in of_stack or (operation == "refresh" and _REFRESH in of_stack)
    same = max(plan.summary.get(PlanAction.SAME, 0), preview.counted(Op.SAME) - is_same)
    summary = {**plan.summary, **({PlanAction.SAME: same} if same else {})}
    if operation != "refresh":
        return summary, []
    known = plan.summary.get(PlanAction.UPDATE, 0)
    untold = preview.counted(Op.UPDATE) - known
    if untold <= 0:
        return summary, []
    summary[PlanAction.UPDATE] = known + untold
    note = (
        f"which {counted(untold, 'resource')} changed outside: the document counts and does not "
        "name what has no property-level differences; `--event-log FILE` names it"
    )
    return summary, [note]


def _drift(step: _Step) -> ResourceChange:
    """What a refresh found: as the engine has it, by what an update would do about it."""
    old, new = step.old or step.new, None if step.op is Op.DELETE else step.new
    if old is None:
        raise AssertionError("a step has an old or a new state")
    fields = None if new is None else _fields(step, replace(new, inputs=new.outputs), old)
    diff = Diff(step.op is Op.UPDATE, (), delete_before_replace=False, fields=fields)
    change = describe_drift(_Counter(), old, new, diff)
    return change.model_copy(
        update={
            "before": footprint_now(old),
            "after": footprint_then(new, new) if new else None,
        }
    )


def _step(where: str, each: Mapping[str, Any], op: Op) -> _Step:
    states: dict[str, ResourceState | None] = {}
    for key in ("oldState", "newState"):
        state = each.get(key)
        if state is not None and not isinstance(state, dict):
            raise EngineError(f"{where}.{key} is not an object")
        try:
            states[key] = masked_resource(state) if state else None
        except EngineError as error:
            raise EngineError(f"{where}.{key}: {error.message}") from None
    detailed = each.get("detailedDiff")
    details = detailed if isinstance(detailed, dict) else {}
    forced = [
        path
        for path, kind in details.items()
        if isinstance(kind, dict) and str(kind.get("kind")).endswith("-replace")
    ]
    replaces = [*_texts(each.get("replaceReasons")), *forced]
    changed = [*replaces, *_texts(each.get("diffReasons")), *details]
    roots, changed_roots = map(property_paths.top_level, (replaces, changed))
    return _Step(op, states["oldState"], states["newState"], roots, changed_roots)


def _texts(value: Any) -> list[str]:
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _merge(steps: dict[str, _Step], urn: str, step: _Step) -> None:
    """A replacement may be told in up to three steps; it is one change."""
    known = steps.setdefault(urn, step)
    if known is not step:
        known.op = Op.REPLACE if Op.REPLACE in (known.op, step.op) else step.op
        known.old, known.new = known.old or step.old, step.new or known.new
        known.replaces = list(dict.fromkeys([*known.replaces, *step.replaces]))
        known.changed = list(dict.fromkeys([*known.changed, *step.changed]))


def _change(step: _Step) -> ResourceChange:
    fields = None
    if step.op in (Op.UPDATE, Op.REPLACE) and step.old and step.new:
        fields = _fields(step, step.old, step.new)
    diff = Diff(True, step.replaces, delete_before_replace=False, fields=fields)
    change = describe(_Counter(), step.op, step.old, step.new, diff)
    old, new = step.old, None if step.op is Op.DELETE else step.new
    seen = old if step.op in (Op.SAME, Op.UPDATE) else None
    owned = step.op is not Op.READ
    return change.model_copy(
        update={
            "before": footprint_now(old) if old and owned else None,
            "after": footprint_then(new, seen) if new and owned else None,
        }
    )


def _fields(step: _Step, old: ResourceState, new: ResourceState) -> list[FieldChange] | None:
    """What gpuform's own resource says of the change; None where the inputs have to do."""
    kind = kind_of(new.type)
    if kind is None:
        return None
    hidden = secrets_of(old.outputs) | secrets_of(old.inputs) | secrets_of(new.inputs)
    before = {key: value for key, value in old.outputs.items() if key not in hidden}
    after = {key: value for key, value in new.inputs.items() if key not in hidden}
    lifecycle = load_lifecycle_class(*kind)
    secret = dict.fromkeys((hidden & new.inputs.keys()) - {PROVIDER_PROPERTY}, UNKNOWN)
    try:
        # Nothing has checked the document's values: a count may be beyond all bounds.
        problems = validate_inputs(
            lifecycle.inputs, to_properties(to_provider(new.inputs)) | secret
        )[1]
        if not all(each.reason.startswith(_ABOUT_NAMES) for each in problems):
            return None
        found = lifecycle().list_changes(to_provider(before), to_provider(after))
    except Exception:  # noqa: BLE001 - as above
        return None
    return [*found, *_secret_fields(step, old, new, hidden)]


def _secret_fields(
    step: _Step, old: ResourceState, new: ResourceState, hidden: set[str]
) -> Iterator[FieldChange]:
    for key in sorted(hidden):
        was, is_ = key in old.inputs, key in new.inputs
        if (was or is_) and (was is not is_ or key in step.changed):
            action = Action.UPDATE if was and is_ else Action.ADD if is_ else Action.DELETE
            before, after = ("?" if was else None), ("?" if is_ else None)
            forces = key in step.replaces
            yield FieldChange(key, action, before, after, replaces=forces, secret=True)


def _notes(name: str, step: _Step) -> Iterator[str]:
    """What the document cannot tell of a resource, or tells beside its changes."""
    if step.op in (Op.UPDATE, Op.REPLACE) and step.old and step.new:
        both = secrets_of(step.old.inputs) & secrets_of(step.new.inputs)
        unseen = sorted(both - {*step.changed, PROVIDER_PROPERTY})
        if unseen:
            listed = ", ".join(unseen)
            yield f"{name}: whether {listed} changes cannot be seen: the document masks secrets"
    if step.op in (Op.DELETE, Op.REPLACE) and step.old and step.old.protect:
        yield f"{name} is protected: Pulumi will refuse to delete it"


def _errors(document: Mapping[str, Any]) -> Iterator[str]:
    for each in _diagnostics(document):
        message, urn = str(each.get("message", "")).strip(), str(each.get("urn", ""))
        if each.get("severity") == "error" and message:
            about = f"{name_of(urn)}: " if is_urn(urn) else ""
            yield f"{about}{message.removeprefix(_ERROR)}"


def _unchecked(document: Mapping[str, Any]) -> Iterator[str]:
    for each in _diagnostics(document):
        message = str(each.get("message", "")).strip()
        if message.startswith(_NOTE):
            yield message.removeprefix(_NOTE)


def _diagnostics(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    told = document.get("diagnostics")
    return [each for each in told if isinstance(each, dict)] if isinstance(told, list) else []
