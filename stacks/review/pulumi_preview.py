"""The plan in what `pulumi preview --json` or `gpuform preview --json` prints.

Property changes and reasons are made as the engine makes them; what the document does not tell is
said among what was not checked.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuform.providers.catalog import lifecycle_class
from gpuform.providers.properties import plain
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.checking import ABOUT_KEYS, check
from gpuform.schemas.plan import Plan, PlanReason, ResourceChange
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.presentation import describe
from gpuform.stacks.engine.provider_host import Diff
from gpuform.stacks.engine.provider_values import to_provider
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.steps import Op
from gpuform.stacks.engine.urn import STACK_TYPE, is_noise, is_urn, name_of, type_of
from gpuform.stacks.lifecycles import kind_of
from gpuform.stacks.pricing.footprints import footprint_now, footprint_then
from gpuform.stacks.review.masking import masked_resource, secrets_of
from gpuform.stacks.review.names import PROVIDER_PROPERTY

_OPS: Final = {
    **{str(op): op for op in (Op.SAME, Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.IMPORT)},
    **dict.fromkeys(
        ("replace", "create-replacement", "delete-replaced", "import-replacement"), Op.REPLACE
    ),
}
_OF_PREVIEWS: Final = ("steps", "changeSummary", "maybeCorrupt")
_SILENT: Final = ("refresh", "remove-pending-replace", "discard", "discard-replaced")
_NOT_TOLD: Final = "changes of the stack's outputs: the document of a preview does not tell them"
_NOTE: Final = "not checked: "


_ABOUT_NAMES: Final = (*ABOUT_KEYS, "is required")
"""How the reasons of problems begin that are about no value."""


@dataclass(slots=True)
class _Step:
    """All that is told of one resource."""

    op: Op
    old: ResourceState | None
    new: ResourceState | None
    replaces: Sequence[str]
    changed: Sequence[str]


class _Counter:
    """Counts GPUs by type and inputs alone."""

    def gpus(self, resource: ResourceState) -> int | None:
        kind = kind_of(resource.type)
        return lifecycle_class(*kind).gpus(plain(to_provider(resource.inputs))) if kind else 0


def is_preview(document: Mapping[str, Any]) -> bool:
    """Whether a JSON object has the form of a preview."""
    return "format_version" not in document and any(key in document for key in _OF_PREVIEWS)


def plan_of(name: str, document: Mapping[str, Any]) -> Plan:
    """The plan in a preview's document. Raises EngineError, which names the file and the place."""
    steps: dict[str, _Step] = {}
    notes: list[str] = []
    stack, project = "", ""
    told = document.get("steps")
    for at, each in enumerate(told if isinstance(told, list) else []):
        where = f"{name} is no preview: steps.{at}"
        if not isinstance(each, dict) or not is_urn(str(each.get("urn"))):
            raise EngineError(f"{where}.urn is not the name of a resource")
        urn, op = str(each["urn"]), str(each.get("op"))
        stack, project = urn.removeprefix("urn:pulumi:").split("::")[:2]
        if op in _OPS:
            _merge(steps, urn, _step(where, each, _OPS[op]))
        elif op not in _SILENT:
            notes.append(f"{name_of(urn)}: what Pulumi's operation {op} does is not known here")
    if not steps:
        raise EngineError(
            f"{name} has no steps, so that it tells neither stack nor plan",
            "the preview has failed, or the stack is empty: look at its diagnostics",
        )
    found = {urn: step for urn, step in steps.items() if not is_noise(urn.split("::")[2])}
    notes += [note for urn, step in found.items() for note in _notes(name_of(urn), step)]
    notes += [*_diagnostics(document), _NOT_TOLD]
    changes = [_change(step) for step in found.values() if step.old or step.new]
    # No update deletes the stack's own entry.
    if any(type_of(urn) == STACK_TYPE and step.op is Op.DELETE for urn, step in steps.items()):
        changes = [each.model_copy(update={"reason": PlanReason.DESTROYED}) for each in changes]
        plan = Plan.of(project, stack, changes, unchecked=notes)
        return plan.model_copy(update={"operation": "destroy"})
    return Plan.of(project, stack, changes, unchecked=notes)


def _step(where: str, each: Mapping[str, Any], op: Op) -> _Step:
    states: dict[str, ResourceState | None] = {}
    for key in ("oldState", "newState"):
        state = each.get(key)
        if state is not None and not isinstance(state, dict):
            raise EngineError(f"{where}.{key} is not an object")
        try:
            states[key] = masked_resource(state) if state else None
        except EngineError as error:
            raise EngineError(f"{where}.{key}: {error}") from None
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
    lifecycle = lifecycle_class(*kind)
    secret = dict.fromkeys((hidden & new.inputs.keys()) - {PROVIDER_PROPERTY}, UNKNOWN)
    try:
        # Nothing has checked the document's values: a count may be beyond all bounds.
        problems = check(lifecycle.inputs, plain(to_provider(new.inputs)) | secret)[1]
        if not all(each.reason.startswith(_ABOUT_NAMES) for each in problems):
            return None
        found = lifecycle().changes(to_provider(before), to_provider(after))
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
        unseen = sorted(both - {*step.changed})
        if unseen:
            listed = ", ".join(unseen)
            yield f"{name}: whether {listed} changes cannot be seen: the document masks secrets"
    if step.op in (Op.DELETE, Op.REPLACE) and step.old and step.old.protect:
        yield f"{name} is protected: Pulumi will refuse to delete it"


def _diagnostics(document: Mapping[str, Any]) -> Iterator[str]:
    told = document.get("diagnostics")
    for each in told if isinstance(told, list) else []:
        if not isinstance(each, dict):
            continue
        message, urn = str(each.get("message", "")).strip(), str(each.get("urn", ""))
        if message.startswith(_NOTE):
            yield message.removeprefix(_NOTE)
        elif each.get("severity") == "error" and message:
            about = f"{name_of(urn)}: " if is_urn(urn) else ""
            yield f"{about}the preview failed: {message}"
