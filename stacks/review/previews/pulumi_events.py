"""Convert Pulumi's engine events (`--json` streams, `--event-log` files) into a preview document.

The result has the form of `pulumi preview --json`, so that `pulumi_preview` reads both by the same
rules. `reading` calls this module.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import Op
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.review.previews.pulumi_preview import Preview

_HALF_STEPS: Final = (
    *("create-replacement", "delete-replaced", "read-replacement", "import-replacement"),
    *("discard-replaced", "remove-pending-replace"),
)
"""Parts of a replacement, which is reported as a step of its own as well."""

_COLOR: Final = re.compile(r"<\{%.*?%\}>")
_MESSAGE_EVENTS: Final = ("diagnosticEvent", "policyEvent", "stdoutEvent")


def is_event(value: Any) -> bool:
    """Return True if a JSON value is an engine event."""
    return isinstance(value, dict) and "sequence" in value


def build_preview(name: str, events: Sequence[Mapping[str, Any]]) -> Preview:
    """Build the preview from the last run of an event log.

    Raises:
        EngineError: the log is cut off, or its run applied changes and succeeded.
    """
    run = _select_last_run(name, events)
    summaries = _select_contents(run, "summaryEvent")
    summary = summaries[-1] if summaries else {}
    is_applied = summary.get("isPreview") is False
    diagnostics = _list_diagnostics(run)
    # A run that fails early has no summary event.
    failed = not summaries or summary.get("result", "succeeded") != "succeeded"
    if is_applied and not (
        failed or any(diagnostic["severity"] == "error" for diagnostic in diagnostics)
    ):
        raise EngineError(
            f"{name} is the log of a completed run, not of a preview",
            "`gpuform logs` and `gpuform stack history` show what was done",
        )
    steps, refreshes, runs_program = _collect_steps(run)
    counts = summary.get("resourceChanges")
    document = {"steps": steps, "diagnostics": diagnostics, "changeSummary": counts}
    return Preview(document, failed, is_applied, refreshes, runs_program)


def build_truncated_log_error(name: str) -> EngineError:
    """Return the error for a log that ends in the middle of a run."""
    return EngineError(
        f"{name} ends in the middle of a run: its list of changes is incomplete",
        "its command was killed, or still runs: preview again",
    )


def _select_last_run(name: str, events: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the events of the last run. Raises EngineError for a log that is cut off."""
    ends = [index for index, event in enumerate(events) if "cancelEvent" in event]
    if not ends or ends[-1] != len(events) - 1:
        raise build_truncated_log_error(name)
    # `--event-log FILE` appends: an older run may stand before this one.
    begin = ends[-2] + 1 if len(ends) > 1 else 0
    return events[begin : ends[-1]]


def _collect_steps(run: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], bool, bool]:
    """Return the steps, whether the run only refreshes, and whether the program ran to its end."""
    steps_by_key: dict[tuple[str, str], dict[str, Any]] = {}
    started_ops: dict[str, str] = {}
    refreshes, stack_outputs = False, 0
    for metadata, is_over in _iterate_step_metadata(run):
        urn, op = str(metadata.get("urn")), str(metadata.get("op"))
        if not is_over:
            started_ops[urn] = op
            if _is_listed(metadata):
                steps_by_key.setdefault((urn, op), _build_step(metadata))
            continue
        stack_outputs += metadata.get("type") == STACK_TYPE and op != Op.DELETE
        # What a refresh alone has found is the operation of its end.
        if started_ops.get(urn) == Op.REFRESH != op:
            refreshes = True
            if op in (Op.UPDATE, Op.DELETE):
                steps_by_key[urn, Op.REFRESH] = _build_step(metadata)
    return [*steps_by_key.values()], refreshes, stack_outputs > 1


def _iterate_step_metadata(
    run: Iterable[Mapping[str, Any]],
) -> Iterable[tuple[Mapping[str, Any], bool]]:
    """Yield the metadata of each event of a step, and whether the step has ended."""
    for event in run:
        for kind, is_over in (("resourcePreEvent", False), ("resOutputsEvent", True)):
            content = event.get(kind)
            metadata = content.get("metadata") if isinstance(content, dict) else None
            if isinstance(metadata, dict):
                yield metadata, is_over


def _is_listed(metadata: Mapping[str, Any]) -> bool:
    """Return True if `pulumi preview --json` lists the step.

    Of unchanged resources the stack is listed, and those whose protection changes. Of a replacement
    the step for the whole is listed; the steps for its create and delete only if `logical`.
    """
    op = metadata.get("op")
    # A change of `protect` is an operation without any other difference.
    if op == Op.SAME and metadata.get("type") != STACK_TYPE:
        before, after = (metadata.get(key) or {} for key in ("old", "new"))
        return _is_protected(before) is not _is_protected(after)
    return bool(metadata.get("logical")) or op not in _HALF_STEPS


def _is_protected(state: Any) -> bool:
    """Return True if a state in a step's metadata is protected; False without a state."""
    return isinstance(state, dict) and state.get("protect") is True


def _build_step(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the metadata of an event to a step of a preview document."""
    details = metadata.get("detailedDiff")
    return {
        "op": metadata.get("op"),
        "urn": metadata.get("urn"),
        "oldState": metadata.get("old"),
        "newState": metadata.get("new"),
        "diffReasons": metadata.get("diffs"),
        "replaceReasons": metadata.get("keys"),
        "detailedDiff": {
            path: {"kind": difference.get("diffKind")}
            if isinstance(difference, dict)
            else difference
            for path, difference in (details if isinstance(details, dict) else {}).items()
        },
    }


def _list_diagnostics(run: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """List the messages of a run without colors; mandatory policies count as errors.

    Ephemeral messages are left out.
    """
    return [
        {
            "urn": str(content.get("urn") or content.get("resourceUrn") or ""),
            "message": _COLOR.sub(
                "", f"{_format_policy_prefix(content)}{content.get('message', '')}"
            ),
            # A mandatory policy stops the run, whatever the severity of its event.
            "severity": "error" if _is_mandatory(content) else str(content.get("severity")),
        }
        for content in _select_contents(run, *_MESSAGE_EVENTS)
        if not content.get("ephemeral")
    ]


def _format_policy_prefix(content: Mapping[str, Any]) -> str:
    """Return `policy <name>: ` for the message of a policy, else an empty text."""
    policy = content.get("policyName")
    return f"policy {policy}: " if policy else ""


def _is_mandatory(policy: Any) -> bool:
    """Return True for the event of a policy whose violation stops the run."""
    return isinstance(policy, dict) and policy.get("enforcementLevel") == "mandatory"


def _select_contents(run: Iterable[Mapping[str, Any]], *kinds: str) -> list[Mapping[str, Any]]:
    """Return the contents of the events of the given kinds, in the order of the run."""
    contents = (event.get(kind) for event in run for kind in kinds)
    return [content for content in contents if isinstance(content, dict)]
