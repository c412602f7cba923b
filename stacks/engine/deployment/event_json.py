"""Engine events as Pulumi's own JSON: the lines of its event log, and the object of a preview.

Who reads `pulumi up --json` or `pulumi preview --json` reads these. No secret gets through: each
is `[secret]`, in events within the object that marks it as one.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from gpuform.schemas.changes import Action
from gpuform.schemas.safe_text import MASK, format_json
from gpuform.stacks.engine import values
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
from gpuform.stacks.engine.values import Json, value_json

"""What stands for a secret in everything that Pulumi shows."""

JsonObject: TypeAlias = dict[str, Json]


class _Masking:
    """Encrypts nothing and shows nothing: every secret becomes the same text."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        del plaintext, previous
        return MASK

    def decrypt(self, ciphertext: str) -> str:
        return ciphertext


_MASKING = _Masking()


@dataclass(slots=True)
class EventLog:
    """Writes each event of one run as a line of Pulumi's event log (apitype.EngineEvent).

    `write` gets the line with its end; `now` tells Unix seconds.
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
            self._line("preludeEvent", {"config": {**event.config}})
        elif isinstance(event, StepStarted):
            self._line("resourcePreEvent", _about(event.step, event.step.op, event.planning))
        elif isinstance(event, StepDone):
            self._steps += 1
            self._line("resOutputsEvent", _about(event.step, self._op(event.step), event.planning))
        elif isinstance(event, StepFailed):
            self._fail(event)
        elif isinstance(event, Summary):
            self._line("summaryEvent", _summary(event))
            self._line("cancelEvent", {})
        else:
            self._line("diagnosticEvent", _diagnostic(event))

    def _fail(self, event: StepFailed) -> None:
        self._steps += 1
        if not self._preview:  # its failures are diagnostics only
            failed = {"metadata": _metadata(event.step, event.step.op)}
            self._line("resOpFailedEvent", {**failed, "status": 0, "steps": self._steps})

    def _op(self, step: Step) -> Op:
        """As in Pulumi, a refresh tells what it found; one that leads up to an update does not."""
        return step.shown_op if self._operation == "refresh" else step.op

    def _line(self, kind: str, content: JsonObject) -> None:
        line = {"sequence": self._sequence, "timestamp": int(self.now()), kind: content}
        self._sequence += 1
        self.write(format_json(line, compact=True) + "\n")


@dataclass(slots=True)
class PreviewDigest:
    """Collects the events of a preview; `parts` are the text of `pulumi preview --json`.

    A replacement is one step; of the unchanged resources only the stack is listed, and those whose
    `protect` changes. What a refresh alone finds to be changed, or gone, is listed as that.
    `duration` is in nanoseconds.
    """

    _config: dict[str, str] = field(default_factory=dict)
    # By id(); as text, for as objects those of a large stack would take several times the room.
    _steps: dict[int, tuple[Step, str]] = field(default_factory=dict)
    _diagnostics: list[JsonObject] = field(default_factory=list)
    _summary: Summary | None = None
    _operation: str = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, Prelude):
            self._config, self._operation = dict(event.config), event.operation
        elif isinstance(event, StepStarted):
            if _is_listed(event.step):
                # At once: later the step holds outputs as well, which the CLI does not show.
                self._steps[id(event.step)] = event.step, _compact(_preview_step(event.step))
        elif isinstance(event, StepDone) and self._operation == "refresh":
            self._find(event.step)
        elif isinstance(event, Diagnostic | SkippedCheck):
            told = _diagnostic(event)
            if told["severity"] != "debug":
                names = ("urn", "prefix", "message", "severity")
                self._diagnostics.append({name: told[name] for name in names if name in told})
        elif isinstance(event, Summary):
            self._summary = event

    def _find(self, step: Step) -> None:
        is_found = step.op is Op.REFRESH and step.result_op in (Op.UPDATE, Op.DELETE)
        if is_found and id(step) in self._steps:
            told = {**_preview_step(step), "op": str(step.result_op)}
            self._steps[id(step)] = step, _compact(told)

    def parts(self) -> Iterator[str]:
        """The text without what the run did not come to, in parts that end with a line each."""
        before = format_json({"config": {**self._config}}, indent=_INDENT).removesuffix("\n}")
        margin, deeper = " " * _INDENT, "\n" + " " * 2 * _INDENT
        yield f'{before},\n{margin}"steps": [' + ("\n" if self._steps else "],\n")
        for left, (_, told) in zip(
            range(len(self._steps) - 1, -1, -1), self._steps.values(), strict=True
        ):
            text = "\n" + format_json(json.loads(told), indent=_INDENT)
            yield text.replace("\n", deeper).removeprefix("\n") + (",\n" if left else "\n")
        if self._steps:
            yield f"{margin}],\n"
        yield format_json(self._ending(), indent=_INDENT).removeprefix("{\n")

    def _ending(self) -> JsonObject:
        """What comes after the steps."""
        made: JsonObject = {}
        if self._diagnostics:
            made["diagnostics"] = [*self._diagnostics]
        if self._summary is not None:
            made["duration"] = int(self._summary.seconds * 1e9)
            made["changeSummary"] = {**self._summary.changes}
        made["maybeCorrupt"] = False
        return made


_INDENT: Final = 4


def _compact(told: JsonObject) -> str:
    return json.dumps(told, separators=(",", ":"))


def mask_secrets(properties: Mapping[str, Json]) -> JsonObject:
    """Encoded properties with every object that marks a secret replaced by `[secret]`."""
    return {key: _masked(value) for key, value in properties.items()}


def _masked(value: Json) -> Json:
    if isinstance(value, dict):
        is_secret = value.get(values.SIGNATURE_KEY) == values.SECRET_SIGNATURE
        return MASK if is_secret else mask_secrets(value)
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _is_listed(step: Step) -> bool:
    if not step.op.is_logical or is_provider(step.state.type):
        return False
    if step.op is not Op.SAME or step.state.type == STACK_TYPE:
        return True
    return step.old is not None and step.old.protect != step.state.protect


def _preview_step(step: Step) -> JsonObject:
    made: JsonObject = {"op": str(step.op), "urn": step.urn}
    if step.state.provider:
        made["provider"] = step.state.provider
    if step.old is not None:
        made["oldState"] = _resource(step.old)
    if step.new is not None:
        made["newState"] = _resource(step.new)
    if step.diffs:
        made["diffReasons"] = [*step.diffs]
    if step.keys:
        made["replaceReasons"] = [*step.keys]
    made["detailedDiff"] = _detailed_diff(step, "kind")
    return made


def _resource(state: ResourceState) -> JsonObject:
    document: JsonObject = json.loads(encode_resource(state, _MASKING))
    return mask_secrets(document)


def _about(step: Step, op: Op, planning: bool) -> JsonObject:
    made: JsonObject = {"metadata": _metadata(step, op)}
    if planning:
        made["planning"] = True
    return made


def _metadata(step: Step, op: Op) -> JsonObject:
    return {
        "op": str(op),
        "urn": step.urn,
        "type": step.state.type,
        "old": None if step.old is None else _state(step.old),
        "new": None if step.new is None else _state(step.new),
        "keys": [*step.keys],
        "diffs": [*step.diffs],
        "detailedDiff": _detailed_diff(step, "diffKind"),
        "logical": step.op.is_logical and step.op is not Op.REFRESH,
        "provider": step.state.provider,
    }


def _state(state: ResourceState) -> JsonObject:
    made: JsonObject = {
        "type": state.type,
        "urn": state.urn,
        "custom": state.custom,
        "id": state.id,
        "parent": state.parent,
        "provider": state.provider,
        "inputs": value_json.encode_map(state.inputs, _MASKING),
        "outputs": value_json.encode_map(state.outputs, _MASKING),
    }
    flags = {
        "delete": state.delete,
        "protect": state.protect,
        "retainOnDelete": state.retain_on_delete,
    }
    made.update({name: True for name, is_set in flags.items() if is_set})
    if state.init_errors:
        made["initErrors"] = [*state.init_errors]
    return made


_KINDS = {Action.ADD: "add", Action.UPDATE: "update", Action.DELETE: "delete"}


def _detailed_diff(step: Step, kind: str) -> JsonObject | None:
    """Path -> what happens to the property, where the plan knows; `kind` names the entry."""
    if step.change is None or step.shown_op not in (Op.UPDATE, Op.REPLACE):
        return None
    made: JsonObject = {
        change.path: {
            kind: _KINDS[change.action] + ("-replace" if change.forces_replacement else ""),
            "inputDiff": True,
        }
        for change in step.change.changes
        if change.action in _KINDS
    }
    return made or None


def _diagnostic(event: Diagnostic | SkippedCheck | Progress) -> JsonObject:
    severity = event.severity if isinstance(event, Diagnostic) else "info"
    urn = "" if isinstance(event, SkippedCheck) else event.urn
    text = event.message if isinstance(event, Diagnostic) else event.text
    made: JsonObject = {"urn": urn} if urn else {}
    made["prefix"] = f"{severity.partition('#')[0]}: "
    made["message"] = f"not checked: {text}" if isinstance(event, SkippedCheck) else text
    made["color"] = "never"
    made["severity"] = severity
    if isinstance(event, Progress):
        made["ephemeral"] = True
    return made


def _summary(event: Summary) -> JsonObject:
    return {
        "maybeCorrupt": False,
        "durationSeconds": int(event.seconds),
        "resourceChanges": {**event.changes},
        "PolicyPacks": {},
        "isPreview": event.preview,
        "result": event.result,
    }
