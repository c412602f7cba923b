"""The preview in Pulumi's engine events: what `--json` streams and `--event-log` writes.

It is brought into the form of the one object that `pulumi preview --json` prints, so that both are
read by the same rules.
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
"""Parts of a replacement, which is a step of its own as well."""

_COLOR: Final = re.compile(r"<\{%.*?%\}>")
_KINDS: Final = ("diagnosticEvent", "policyEvent", "stdoutEvent")


def is_event(value: Any) -> bool:
    """Whether a JSON value is an engine event."""
    return isinstance(value, dict) and "sequence" in value


def preview_of(name: str, events: Sequence[Mapping[str, Any]]) -> Preview:
    """The last run of a log. Raises EngineError for one that is cut off, or was no preview and has
    not failed.
    """
    run = _last_run(name, events)
    told = _contents(run, "summaryEvent")
    summary = told[-1] if told else {}
    was_done = summary.get("isPreview") is False
    diagnostics = _diagnostics(run)
    failed = not told or summary.get("result", "succeeded") != "succeeded"
    if was_done and not (failed or any(each["severity"] == "error" for each in diagnostics)):
        raise EngineError(
            f"{name} tells what a run has done, not what one would do",
            "`gpuform logs` and `gpuform stack history` show what was done",
        )
    steps, refreshes, runs_program = _steps(run)
    counts = summary.get("resourceChanges")
    document = {"steps": steps, "diagnostics": diagnostics, "changeSummary": counts}
    return Preview(document, failed, was_done, refreshes, runs_program)


def cut_off(name: str) -> EngineError:
    """What is raised for a log without its end."""
    return EngineError(
        f"{name} ends in the middle of a run: it does not tell what would be done",
        "its command was killed, or is still at work: preview again",
    )


def _last_run(name: str, events: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    ends = [at for at, event in enumerate(events) if "cancelEvent" in event]
    if not ends or ends[-1] != len(events) - 1:
        raise cut_off(name)
    begin = ends[-2] + 1 if len(ends) > 1 else 0
    return events[begin : ends[-1]]


def _steps(run: Iterable[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], bool, bool]:
    """The steps, whether it is a refresh alone, and whether the program has run to its end."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    began: dict[str, str] = {}
    refreshes, stack_outputs = False, 0
    for metadata, is_over in _metadata(run):
        urn, op = str(metadata.get("urn")), str(metadata.get("op"))
        if not is_over:
            began[urn] = op
            if _is_listed(metadata):
                found.setdefault((urn, op), _step(metadata))
            continue
        stack_outputs += metadata.get("type") == STACK_TYPE and op != Op.DELETE
        # What a refresh alone has found is the operation of its end.
        if began.get(urn) == Op.REFRESH != op:
            refreshes = True
            if op in (Op.UPDATE, Op.DELETE):
                found[urn, Op.REFRESH] = _step(metadata)
    return [*found.values()], refreshes, stack_outputs > 1


def _metadata(run: Iterable[Mapping[str, Any]]) -> Iterable[tuple[Mapping[str, Any], bool]]:
    for event in run:
        for kind, is_over in (("resourcePreEvent", False), ("resOutputsEvent", True)):
            content = event.get(kind)
            metadata = content.get("metadata") if isinstance(content, dict) else None
            if isinstance(metadata, dict):
                yield metadata, is_over


def _is_listed(metadata: Mapping[str, Any]) -> bool:
    op = metadata.get("op")
    if op == Op.SAME and metadata.get("type") != STACK_TYPE:
        before, after = (metadata.get(key) or {} for key in ("old", "new"))
        return _is_protected(before) is not _is_protected(after)
    return bool(metadata.get("logical")) or op not in _HALF_STEPS


def _is_protected(state: Any) -> bool:
    return isinstance(state, dict) and state.get("protect") is True


def _step(metadata: Mapping[str, Any]) -> dict[str, Any]:
    details = metadata.get("detailedDiff")
    return {
        "op": metadata.get("op"),
        "urn": metadata.get("urn"),
        "oldState": metadata.get("old"),
        "newState": metadata.get("new"),
        "diffReasons": metadata.get("diffs"),
        "replaceReasons": metadata.get("keys"),
        "detailedDiff": {
            path: {"kind": each.get("diffKind")} if isinstance(each, dict) else each
            for path, each in (details if isinstance(details, dict) else {}).items()
        },
    }


def _diagnostics(run: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [
        {
            "urn": str(content.get("urn") or content.get("resourceUrn") or ""),
            "message": _COLOR.sub("", f"{_prefix(content)}{content.get('message', '')}"),
            "severity": "error" if _is_mandatory(content) else str(content.get("severity")),
        }
        for content in _contents(run, *_KINDS)
        if not content.get("ephemeral")
    ]


def _prefix(content: Mapping[str, Any]) -> str:
    policy = content.get("policyName")
    return f"policy {policy}: " if policy else ""


def _is_mandatory(policy: Any) -> bool:
    return isinstance(policy, dict) and policy.get("enforcementLevel") == "mandatory"


def _contents(run: Iterable[Mapping[str, Any]], *kinds: str) -> list[Mapping[str, Any]]:
    found = (event.get(kind) for event in run for kind in kinds)
    return [content for content in found if isinstance(content, dict)]
