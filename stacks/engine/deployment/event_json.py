"""Write engine events as Pulumi's JSON: lines of the event log, and the document of a preview.

`pulumi up --json` and `pulumi preview --json` have the same formats. Every secret is replaced by
`[secret]`, in events within the object that marks the secret. `operations` and commands listen to
events with these classes.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gpuform.schemas.changes import Action
from gpuform.schemas.safe_text import MASK, format_json
from gpuform.schemas.values import convert_leaves, is_secret_object
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.planning import (
    Diagnostic,
    Event,
    Op,
    Prelude,
    Progress,
    SkippedCheck,
    Step,
    StepDone,
    StepFailed,
    StepStarted,
    Summary,
)
from gpuform.stacks.engine.state import ResourceState, encode_resource
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider
from gpuform.stacks.engine.value_json import Json

JsonObject: TypeAlias = dict[str, Json]


_MASKING_CRYPTER = value_json.MaskingCrypter()


@dataclass(slots=True)
class EventLog:
    """Writes each event of one run as a line of Pulumi's event log (apitype.EngineEvent).

    `write` receives the line with its line end; `now` returns Unix seconds.
    """

    write: Callable[[str], object]
    now: Callable[[], float] = time.time
    _sequence: int = 0
    _steps: int = 0
    _operation: str = ""
    _preview: bool = False

    def __call__(self, event: Event) -> None:
        if isinstance(event, Prelude):
            self._operation, self._preview = event.operation, event.preview
            self._write_event("preludeEvent", {"config": {**event.config}})
        elif isinstance(event, StepStarted):
            self._write_event(
                "resourcePreEvent", _build_step_event(event.step, event.step.op, event.planning)
            )
        elif isinstance(event, StepDone):
            self._steps += 1
            op = event.step.shown_op if self._operation == "refresh" else event.step.op
            self._write_event("resOutputsEvent", _build_step_event(event.step, op, event.planning))
        elif isinstance(event, StepFailed):
            self._write_failure(event)
        elif isinstance(event, Summary):
            self._write_event("summaryEvent", _build_summary(event))
            # Pulumi's log ends with this event, whatever the result is.
            self._write_event("cancelEvent", {})
        else:
            self._write_event("diagnosticEvent", _build_diagnostic(event))

    def _write_failure(self, event: StepFailed) -> None:
        """Count a failed step, and write the event of the failure; a preview writes none."""
        self._steps += 1
        # A preview of Pulumi's reports failures as diagnostics only.
        if not self._preview:
            failed = {"metadata": _build_metadata(event.step, event.step.op)}
            self._write_event("resOpFailedEvent", {**failed, "status": 0, "steps": self._steps})

    def _write_event(self, kind: str, content: JsonObject) -> None:
        """Write a line of the log: the content under `kind`, with sequence number and time."""
        line = {"sequence": self._sequence, "timestamp": int(self.now()), kind: content}
        self._sequence += 1
        self.write(format_json(line, compact=True) + "\n")


@dataclass(slots=True)
class PreviewDigest:
    """Collects the events of a preview and formats the document of `pulumi preview --json`.

    A replacement is one step; unchanged resources are left out, except the stack and resources
    whose `protect` changes. A refresh operation lists drift and missing objects. `duration` is in
    nanoseconds.
    """

    _config: dict[str, str] = field(default_factory=dict)
    # By number of the step. JSON text, because the parsed documents of a large stack would need
    # several times the memory.
    _steps: dict[int, str] = field(default_factory=dict)
    _diagnostics: list[JsonObject] = field(default_factory=list)
    _summary: Summary | None = None
    _operation: str = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Prelude):
            self._config, self._operation = dict(event.config), event.operation
        elif isinstance(event, StepStarted):
            if _is_listed(event.step):
                # Encoded now: later the step has outputs too, which the CLI does not show here.
                self._steps[event.step.number] = _to_compact_json(_build_preview_step(event.step))
        elif isinstance(event, StepDone) and self._operation == "refresh":
            self._record_drift(event.step)
        elif isinstance(event, Diagnostic | SkippedCheck):
            diagnostic = _build_diagnostic(event)
            if diagnostic["severity"] != "debug":
                names = ("urn", "prefix", "message", "severity")
                self._diagnostics.append(
                    {name: diagnostic[name] for name in names if name in diagnostic}
                )
        elif isinstance(event, Summary):
            self._summary = event

    def _record_drift(self, step: Step) -> None:
        """Replace the refresh step by the step's result if the refresh found drift."""
        is_drift = step.op is Op.REFRESH and step.result_op in (Op.UPDATE, Op.DELETE)
        if is_drift and step.number in self._steps:
            preview_step = {**_build_preview_step(step), "op": str(step.result_op)}
            self._steps[step.number] = _to_compact_json(preview_step)

    def format_parts(self) -> Iterator[str]:
        """Yield the JSON document in parts, each ending with a newline.

        After an unfinished run it has the steps so far and no summary.
        """
        before = format_json({"config": {**self._config}}, indent=_INDENT).removesuffix("\n}")
        margin, deeper = " " * _INDENT, "\n" + " " * 2 * _INDENT
        yield f'{before},\n{margin}"steps": [' + ("\n" if self._steps else "],\n")
        for remaining_count, step_json in zip(
            range(len(self._steps) - 1, -1, -1), self._steps.values(), strict=True
        ):
            formatted = "\n" + format_json(json.loads(step_json), indent=_INDENT)
            yield formatted.replace("\n", deeper).removeprefix("\n") + (
                ",\n" if remaining_count else "\n"
            )
        if self._steps:
            yield f"{margin}],\n"
        yield format_json(self._build_ending(), indent=_INDENT).removeprefix("{\n")

    def _build_ending(self) -> JsonObject:
        """Build the members after `steps`; without diagnostics or a summary, theirs are missing."""
        document: JsonObject = {}
        if self._diagnostics:
            document["diagnostics"] = [*self._diagnostics]
        if self._summary is not None:
            document["duration"] = int(self._summary.seconds * 1e9)
            document["changeSummary"] = {**self._summary.changes}
        document["maybeCorrupt"] = False
        return document


_INDENT: Final = 4


def _to_compact_json(document: JsonObject) -> str:
    """Return a document as JSON without spaces."""
    return json.dumps(document, separators=(",", ":"))


def mask_secrets(properties: Mapping[str, Json]) -> JsonObject:
    """Return encoded properties with `[secret]` in place of every secret object."""
    return {
        key: convert_leaves(
            value, lambda leaf: MASK if isinstance(leaf, dict) else leaf, is_secret_object
        )
        for key, value in properties.items()
    }


def _is_listed(step: Step) -> bool:
    """Return True if Pulumi's preview lists the step.

    Providers, the single steps of a replacement, and unchanged resources are not listed; the stack,
    and resources whose protection changed, are.
    """
    if not step.op.is_logical or is_provider(step.state.type):
        return False
    if step.op is not Op.SAME or step.state.type == STACK_TYPE:
        return True
    return step.old is not None and step.old.protect != step.state.protect


def _build_preview_step(step: Step) -> JsonObject:
    """Build the step in the form of `pulumi preview --json`, with secrets masked."""
    document: JsonObject = {"op": str(step.op), "urn": step.urn}
    if step.state.provider:
        document["provider"] = step.state.provider
    if step.old is not None:
        document["oldState"] = _encode_masked(step.old)
    if step.new is not None:
        document["newState"] = _encode_masked(step.new)
    if step.diffs:
        document["diffReasons"] = [*step.diffs]
    if step.keys:
        document["replaceReasons"] = [*step.keys]
    document["detailedDiff"] = _build_detailed_diff(step, "kind")
    return document


def _encode_masked(state: ResourceState) -> JsonObject:
    """Return a resource's state as the JSON object of the state file, with secrets masked."""
    document: JsonObject = json.loads(encode_resource(state, _MASKING_CRYPTER))
    return mask_secrets(document)


def _build_step_event(step: Step, op: Op, planning: bool) -> JsonObject:
    """Build the event of a step; `planning` marks the event of a preview."""
    document: JsonObject = {"metadata": _build_metadata(step, op)}
    if planning:
        document["planning"] = True
    return document


def _build_metadata(step: Step, op: Op) -> JsonObject:
    """Build the metadata of a step's event in the form of Pulumi's event log."""
    return {
        "op": str(op),
        "urn": step.urn,
        "type": step.state.type,
        "old": None if step.old is None else _build_state(step.old),
        "new": None if step.new is None else _build_state(step.new),
        "keys": [*step.keys],
        "diffs": [*step.diffs],
        # Events have the key `diffKind` where the preview document has `kind`.
        "detailedDiff": _build_detailed_diff(step, "diffKind"),
        # Pulumi counts a refresh by its result, not as a step of its own.
        "logical": step.op.is_logical and step.op is not Op.REFRESH,
        "provider": step.state.provider,
    }


def _build_state(state: ResourceState) -> JsonObject:
    """Build the state of a resource in the form of Pulumi's event log, with secrets as masks."""
    document: JsonObject = {
        "type": state.type,
        "urn": state.urn,
        "custom": state.custom,
        "id": state.id,
        "parent": state.parent,
        "provider": state.provider,
        "inputs": value_json.encode_map(state.inputs, _MASKING_CRYPTER),
        "outputs": value_json.encode_map(state.outputs, _MASKING_CRYPTER),
    }
    flags = {
        "delete": state.delete,
        "protect": state.protect,
        "retainOnDelete": state.retain_on_delete,
    }
    document.update({name: True for name, is_set in flags.items() if is_set})
    if state.init_errors:
        document["initErrors"] = [*state.init_errors]
    return document


_KINDS = {Action.ADD: "add", Action.UPDATE: "update", Action.DELETE: "delete"}


def _build_detailed_diff(step: Step, kind: str) -> JsonObject | None:
    """Return the kind of change by property path, or None if the plan does not know the paths.

    Return None for all steps except updates and replacements. `kind` is the key that holds the
    kind.
    """
    if step.change is None or step.shown_op not in (Op.UPDATE, Op.REPLACE):
        return None
    document: JsonObject = {
        change.path: {
            kind: _KINDS[change.action] + ("-replace" if change.forces_replacement else ""),
            "inputDiff": True,
        }
        for change in step.change.changes
        if change.action in _KINDS
    }
    return document or None


def _build_diagnostic(event: Diagnostic | SkippedCheck | Progress) -> JsonObject:
    """Build the message of an event; a skipped check begins with `not checked:`."""
    severity = event.severity if isinstance(event, Diagnostic) else "info"
    urn = "" if isinstance(event, SkippedCheck) else event.urn
    message = event.message if isinstance(event, Diagnostic) else event.text
    document: JsonObject = {"urn": urn} if urn else {}
    document["prefix"] = f"{severity.partition('#')[0]}: "
    document["message"] = f"not checked: {message}" if isinstance(event, SkippedCheck) else message
    document["color"] = "never"
    document["severity"] = severity
    if isinstance(event, Progress):
        document["ephemeral"] = True
    return document


def _build_summary(event: Summary) -> JsonObject:
    """Return the `summaryEvent` of Pulumi's event log for the end of a run."""
    return {
        "maybeCorrupt": False,
        "durationSeconds": int(event.seconds),
        "resourceChanges": {**event.changes},
        "PolicyPacks": {},
        "isPreview": event.preview,
        "result": event.result,
    }
