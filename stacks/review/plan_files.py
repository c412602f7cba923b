"""Read a file for review or for applying: a plan of gpuform, or a preview as JSON or events.

`gpuform review`, `up --plan` and `destroy --plan` call this module. Secrets are not kept. Pulumi's
engine events (`--json` streams, `--event-log` files) become a document like that of `pulumi preview
--json`, so that `pulumi_preview` reads both by the same rules.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import FORMAT_VERSION, Plan
from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.engine.machine import describe_release
from gpuform.stacks.engine.planning import Op
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.review.pulumi_preview import Preview, build_plan, is_preview

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
    """Return the error for a log cut off in the middle of a run."""
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
    """Return the steps, whether the run only refreshes, and whether the program ended."""
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


_LINES_BEGIN: Final = b',"plans":[\n'
_LINES_END: Final = b"]}\n"


def encode_stacks_plan(stacks_plan: StacksPlan, plans: Iterable[Plan]) -> Iterator[bytes]:
    """Yield the bytes of a file of a multi-stack plan, with `plans` as the plans of its stacks.

    The file is one JSON document. The plan of each stack is one line, so that a run of one stack
    reads only the plan of this stack.
    """
    yield stacks_plan.model_dump_json(exclude={"plans"}).encode().removesuffix(b"}")
    yield _LINES_BEGIN
    separator = b""
    for plan in plans:
        yield separator + plan.model_dump_json().encode()
        separator = b",\n"
    yield b"\n" + _LINES_END


def split_stacks_plan(lines: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the JSON of the multi-stack plan without plans, and then of the plan of each stack.

    `lines` are those of a file. Raises ValueError at the first line that `encode_stacks_plan` does
    not write: the file may still be a plan in another layout.
    """
    head = next(lines, b"")
    if not (head.startswith(b'{"format_version":') and head.endswith(_LINES_BEGIN)):
        raise ValueError("another layout")
    yield head.removesuffix(_LINES_BEGIN) + b',"plans":[]}'
    follows = True
    for line in lines:
        if line == _LINES_END:
            break
        if not follows:
            raise ValueError("another layout")
        follows = line.endswith(b",\n")
        yield line.removesuffix(b"\n").removesuffix(b",")
    else:
        raise ValueError("cut off")
    if follows or next(lines, None) is not None:
        raise ValueError("another layout")


_REVIEW_HINT = (
    "pass a plan that `gpuform preview --save-plan FILE` saved, or the `--json` or `--event-log` "
    "output of a preview by `gpuform` or `pulumi`"
)
_APPLY_HINT = (
    "save a plan with `gpuform preview --save-plan FILE`, or with `gpuform destroy` or `refresh`"
)
_OTHER_RELEASE_HINT = "use the release of gpuform that made the plan, or a later one"
UNKNOWN_FIELD: Final = "unknown field"
"""The reason why a plan of a newer release cannot be read."""
_CLI_PLAN = "resourcePlans"
_PLANS = "plans"
_Model = TypeVar("_Model", Plan, StacksPlan)

_MAX_DEPTH = 100
_VALUE = re.compile(r"[^ \t\r\n]")

_OTHER_FORMATS = {
    _CLI_PLAN: "a plan file of the Pulumi CLI, which has another form",
    "checkpoint": "a state file",
    "deployment": "an exported state",
    "resource_changes": "a plan of Terraform or OpenTofu",
    "waves": "the schedule of the parts of a plan",
    "schedule": "a part of a plan of several stacks, and `gpuform join` makes the plan",
    "stacks": "a review, not a plan",
}
"""A key that only another kind of file has, and the description of that kind."""


class PlanFileError(EngineError):
    """The file is not a plan, or its plan cannot be shown."""

    help_page = "guides/review"


def read_plan(name: str, content: bytes) -> Plan:
    """Read the plan of one stack from a file's content. Raises EngineError with the place."""
    plan = read_plans(name, content)
    if isinstance(plan, StacksPlan):
        raise PlanFileError(f"{name} is a plan of several stacks", "`gpuform review` shows it")
    return plan


def read_plans(name: str, content: bytes, *, keeps_digests: bool = True) -> Plan | StacksPlan:
    """Read the plan of one or several stacks from a file's content. Raises EngineError.

    The content is a saved plan, the JSON of a preview, or its event log. With `keeps_digests` False
    the plans of many stacks may lack the digests of `Plan.drop_digests`, and need less memory.
    """
    if (stacks_plan := _read_plan_lines(content, keeps_digests=keeps_digests)) is not None:
        return stacks_plan
    *before, last = _parse_json_values(name, content, _REVIEW_HINT)
    # An event log can begin with other lines, so the last value decides.
    if is_event(last):
        events = [value for value in before if is_event(value)]
        return _build_plan_of_preview(name, build_preview(name, [*events, last]))
    if before:
        raise PlanFileError(
            f"{name} is not a plan: it contains more than one JSON value", _REVIEW_HINT
        )
    document = _require_object(name, last, _REVIEW_HINT)
    if is_preview(document):
        return _build_plan_of_preview(name, Preview(document))
    return _read_any_plan(name, document, _REVIEW_HINT)


def _read_plan_lines(content: bytes, *, keeps_digests: bool) -> StacksPlan | None:
    """Read a multi-stack plan in the layout of `encode_stacks_plan`, or return None for others.

    The plans become objects one by one: all as JSON values together would need more memory.
    """
    try:
        lines = split_stacks_plan(iter(io.BytesIO(content)))
        head = from_json(next(lines))
        plans = tuple(
            plan if keeps_digests else plan.drop_digests()
            for plan in map(Plan.model_validate_json, lines)
        )
        return StacksPlan.model_validate({**head, "plans": plans})
    except (ValueError, TypeError):
        return None


def read_saved_plan(name: str, content: bytes) -> Plan:
    """Read the saved plan of one stack for a later run. Raises EngineError."""
    plan = read_saved_plans(name, content)
    if isinstance(plan, StacksPlan):
        raise PlanFileError(
            f"{name} is a plan of several stacks", f"`gpuform up --all --plan {name}` applies it"
        )
    return plan


def read_saved_plans(name: str, content: bytes, *, keeps_digests: bool = True) -> Plan | StacksPlan:
    """Read the saved plan of one or several stacks for a later run, as `read_plans`.

    Raises:
        EngineError: the content is no plan, the output of a preview, or a plan without its basis.
    """
    saved_plan: Plan | StacksPlan | None = _read_plan_lines(content, keeps_digests=keeps_digests)
    if saved_plan is None:
        *before, last = _parse_json_values(name, content, _APPLY_HINT)
        document = _require_object(name, last, _APPLY_HINT)
        if before or is_event(document) or is_preview(document):
            raise PlanFileError(f"{name} is the output of a preview, not a saved plan", _APPLY_HINT)
        saved_plan = _read_any_plan(name, document, _APPLY_HINT)
    plans = saved_plan.plans if isinstance(saved_plan, StacksPlan) else (saved_plan,)
    # Without its basis, a plan cannot be compared with the state before it is applied.
    if any(plan.basis is None for plan in plans):
        raise PlanFileError(
            f"{name} is not a plan: it does not record the state that it is based on", _APPLY_HINT
        )
    return saved_plan


def _parse_json_values(name: str, content: bytes, hint: str) -> list[Any]:
    """Parse the JSON values of a file: one document, or the events of a log.

    Raises PlanFileError for another file or an empty one, and EngineError for values that are
    nested too deep or an event log that is cut off.
    """
    try:
        json_text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"{name} is not a plan: it is not UTF-8 text (byte {error.start})"
        raise PlanFileError(message, hint) from None
    # `json.loads` reads only one value; an event log has one for each event.
    decoder, values, at = json.JSONDecoder(), list[Any](), _find_next_value(json_text, 0)
    if at == len(json_text):
        raise PlanFileError(f"{name} is not a plan: it is empty", hint)
    try:
        while at < len(json_text):
            value, end = decoder.raw_decode(json_text, at)
            values.append(value)
            at = _find_next_value(json_text, end)
    except json.JSONDecodeError as error:
        # The command that wrote the log was killed: the last line is incomplete.
        if values and is_event(values[-1]):
            raise build_truncated_log_error(name) from None
        message = f"{name}:{error.lineno}:{error.colno}: this is not JSON: {error.msg}"
        raise PlanFileError(message, hint) from None
    except RecursionError:
        raise _build_depth_error(name, hint) from None
    if _is_too_deep(values):
        raise _build_depth_error(name, hint)
    return values


def _find_next_value(text: str, at: int) -> int:
    """Return the index of the next JSON value; the text's length if none follows."""
    match = _VALUE.search(text, at)
    return match.start() if match else len(text)


def _require_object(name: str, value: Any, hint: str) -> dict[str, Any]:
    """Return the value if a JSON object.

    Raises:
        PlanFileError: the value has another type.
    """
    if not isinstance(value, dict):
        raise PlanFileError(f"{name} is not a plan: it is not an object", hint)
    return value


def _build_plan_of_preview(name: str, preview: Preview) -> Plan:
    """Build the plan of a preview; an error without a hint gets the hint for reviews."""
    try:
        return build_plan(name, preview)
    except EngineError as error:
        error.hint = error.hint or _REVIEW_HINT
        raise


def _is_too_deep(document: Any) -> bool:
    """Return True if the values are nested deeper than `_MAX_DEPTH`."""
    level = [document]
    # Only what has something inside: what is inside of the last level is too deep.
    # Walks level by level: recursion would overflow on a hostile file.
    for _ in range(_MAX_DEPTH - 1):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value)
            if inner and isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _read_any_plan(name: str, document: dict[str, Any], hint: str) -> Plan | StacksPlan:
    """Read a plan of one or several stacks, by the keys of the document."""
    # Only a plan of one stack has `changes`.
    if _PLANS in document and "changes" not in document:
        return _validate_plan(StacksPlan, name, document, hint)
    return _read_single_plan(name, document, hint)


def _read_single_plan(name: str, document: dict[str, Any], hint: str) -> Plan:
    """Read the plan of one stack; the error for a file in another known format names the format."""
    # The model's message about missing fields would not say what the file is.
    for key, description in _OTHER_FORMATS.items():
        if key in document and "changes" not in document:
            applies = f"`pulumi up --plan {name}` applies it\n"
            raise PlanFileError(
                f"{name} is {description}", (applies if key == _CLI_PLAN else "") + hint
            )
    return _validate_plan(Plan, name, document, hint)


def _validate_plan(model: type[_Model], name: str, document: dict[str, Any], hint: str) -> _Model:
    """Validate a document as a plan of this format version. Raises PlanFileError."""
    version = document.get("format_version")
    # A plan of another version could validate and mean something else.
    if isinstance(version, str) and version != FORMAT_VERSION:
        raise PlanFileError(
            f"{name} has format_version {version!r}: this gpuform reads {FORMAT_VERSION!r}",
            _OTHER_RELEASE_HINT,
        )
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first, *more = error.errors(include_url=False, include_context=False, include_input=False)
        location = ".".join(str(step) for step in first["loc"]) or "the plan"
        others = f", and {len(more)} more problems" if more else ""
        release = _find_other_release(document)
        if release:
            reason = UNKNOWN_FIELD if first["type"] == "extra_forbidden" else first["msg"]
            raise build_release_error(name, release, f"{location}: {reason}{others}") from None
        raise PlanFileError(
            f"{name} is not a plan: {location}: {first['msg']}{others}", hint
        ) from None


def _find_other_release(document: Mapping[str, Any]) -> str:
    """Return the release that saved the plan, or a plan of several stacks; empty if this one."""
    plans = document.get(_PLANS)
    for plan in (document, *(plans if isinstance(plans, list) else ())):
        release = plan.get("made_by") if isinstance(plan, dict) else None
        if isinstance(release, str) and release not in ("", describe_release()):
            return release
    return ""


def build_release_error(name: str, made_by: str, problem: str) -> EngineError:
    """Build the error for a plan of the release `made_by` that this release does not understand."""
    return PlanFileError(
        f"{name} was saved by {escape_invisible(made_by)}, and this is {describe_release()}, which "
        f"cannot read it: {problem}",
        _OTHER_RELEASE_HINT,
    )


def _build_depth_error(name: str, hint: str) -> EngineError:
    """Build the error for a plan file with too deeply nested JSON."""
    return EngineError(f"{name} is not a plan: it is nested too deeply", hint)
