"""Compare what a run has done with the expectations of its case.

`runner` calls `compare_run` for every case that has a report.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from textwrap import indent
from typing import Any

from gpuform.providers.values import Redactor
from gpuform.schemas.cases_file import DurationInputs, ExpectInputs, ObjectInputs, Verdict
from gpuform.schemas.plan import GateLevel, GateResult, Plan, ResourceChange
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine import property_paths
from gpuform.stacks.operations.runs.options import OutputValue
from gpuform.stacks.review.value_text import counted
from gpuform.stacks.testing.cases import KILLED, Case, ReportedResource, RunReport, get_address

_ACTIONS_WITHOUT_CHANGE = ("same", "read", "refresh")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class UnmetExpectation:
    """A difference from an expectation, and the position of the expectation in the test file."""

    position: SourcePosition
    message: str

    def __str__(self) -> str:
        return f"{self.position}: {self.message}"


def compare_run(case: Case, report: RunReport) -> list[UnmetExpectation]:
    """Return every difference between the run and the case's expectations; none if the case passes.

    Secrets are masked in the messages.
    """
    redactor = Redactor(report.secrets)
    findings = _Comparison(case, report).list_findings()
    return [replace(finding, message=redactor.redact(finding.message)) for finding in findings]


@dataclass(frozen=True, slots=True)
class _Comparison:
    case: Case
    report: RunReport

    def list_findings(self) -> Iterator[UnmetExpectation]:
        """Yield a finding for each difference between the expectations of the case and the report.

        Problems of the case itself are the only findings, if there are any.
        """
        expect = self.case.expect
        if self.report.case_problems:
            yield from (
                UnmetExpectation(self.case.get_position(*path_in_case), message)
                for path_in_case, message in self.report.case_problems
            )
            # Nothing ran as described, so that no other comparison means anything.
            return
        yield from self._compare_ending()
        yield from self._check_events()
        yield from self._check_stack_references()
        if self.report.ending != "succeeded":
            yield from self._compare_messages("error", expect.error or (), self.report.errors)
        yield from self._compare_messages("warning", expect.warning or (), self.report.warnings)
        yield from self._compare_plan_fields(expect)
        yield from self._compare_final_state(expect)
        if expect.takes is not None:
            yield from self._compare_duration(expect.takes)

    def _compare_plan_fields(self, expect: ExpectInputs) -> Iterator[UnmetExpectation]:
        """Yield the findings on the plan: actions, properties, replacements, gates and cost."""
        if expect.plan is not None:
            yield from self._compare_actions(expect.plan)
        for name, values in (expect.properties or {}).items():
            yield from self._compare_properties(name, values)
        for name, paths in (expect.replaced_by or {}).items():
            yield from self._compare_replacement_causes(name, paths)
        for name, verdict in (expect.gates or {}).items():
            yield from self._compare_verdict(name, verdict)
        if expect.hourly_cost is not None:
            yield from self._compare_hourly_cost(expect.hourly_cost)

    def _compare_final_state(self, expect: ExpectInputs) -> Iterator[UnmetExpectation]:
        """Yield the findings on the final state: resources, outputs and objects.

        An `absent` name is a finding also if nothing of that name ever existed or is declared.
        """
        for name, values in (expect.resources or {}).items():
            yield from self._compare_resource(name, values)
        for number, name in enumerate(expect.absent or ()):
            if self._find_resources(name):
                yield self._create_finding(("absent", number), f"{name} is in the state")
            elif (known_names := self._list_known_names()) is not None and not _can_match(
                name, known_names
            ):
                message = f"{name} is absent, but it neither existed nor is declared"
                yield self._create_finding(("absent", number), message)
        for name, value in (expect.outputs or {}).items():
            output = self.report.final_state.outputs.get(name)
            yield from self._compare_value(("outputs", name), f"output {name}", value, output)
        for kind, expected_objects in (expect.objects or {}).items():
            yield from self._compare_objects(kind, expected_objects)

    def _compare_ending(self) -> Iterator[UnmetExpectation]:
        """Yield a finding if the run has another ending than expected.

        Without `result` the run should succeed, or with an expected `error` end in any other way.
        """
        expect, ending = self.case.expect, self.report.ending
        if expect.result is None and expect.error:
            if ending == "succeeded":
                message = "expected an error, but the run has succeeded"
                yield self._create_finding(("error",), message)
            return
        expected_ending = str(expect.result or "succeeded")
        if ending != expected_ending:
            errors = "".join(f"\n{indent(message, '  ')}" for message in self.report.errors)
            steps = ("result",) if expect.result else ()
            message = (
                f"the run should have {_describe_ending(expected_ending)}, "
                f"but it has {_describe_ending(ending)}"
            )
            yield self._create_finding(steps, message + errors)

    def _check_events(self) -> Iterator[UnmetExpectation]:
        """Yield a finding for each event without effect: the case tested nothing."""
        for number in self.report.pending_events:
            event = (self.case.inputs.events or ())[number]
            triggers = (event.at and f"at {event.at}", event.on and f"on {event.on}")
            trigger = next(filter(None, triggers), "before the run")
            duration = format_duration(self.report.final_state.seconds)
            run_end = "was killed" if self.report.ending == KILLED else f"ended after {duration}"
            message = f"the event {trigger} did not happen: the run {run_end}"
            yield UnmetExpectation(self.case.get_position("events", number), message)
        for number, message in self.report.fault_mismatches.items():
            yield UnmetExpectation(self.case.get_position("events", number), message)
        for number, reason in self.report.failed_events.items():
            message = f"the event cannot happen: {reason}"
            yield UnmetExpectation(self.case.get_position("events", number), message)

    def _check_stack_references(self) -> Iterator[UnmetExpectation]:
        """Yield a finding for each declared stack reference unused by the program.

        Only runs of `up` and `preview` with a plan without errors are checked. Stacks named only in
        the file's defaults may be meant for other cases.
        """
        plan, inputs = self.report.plan, self.case.inputs
        if plan is None or plan.errors or (inputs.run or "up") not in ("up", "preview"):
            return
        for name in inputs.stack_references or {}:
            full_name = f"organization/{name.removeprefix('organization/')}"
            if full_name not in plan.stack_references and self.case.has_own_field(
                "stack_references", name
            ):
                read_stacks = ", ".join(plan.stack_references) or "no stack"
                message = f"the program does not read {name}; it reads {read_stacks}"
                yield UnmetExpectation(self.case.get_position("stack_references", name), message)

    def _compare_messages(
        self, field_name: str, expected_texts: Iterable[str], messages: Sequence[str]
    ) -> Iterator[UnmetExpectation]:
        """Yield a finding for each expected text missing in all messages; white space is ignored.

        `field_name` is `error` or `warning`.
        """
        # Test files wrap long messages: white space does not count.
        normalized_messages = [" ".join(message.split()) for message in messages]
        for number, expected_text in enumerate(expected_texts):
            if not any(
                " ".join(expected_text.split()) in message for message in normalized_messages
            ):
                reported = "".join(f"\n{indent(message, '  ')}" for message in messages)
                finding = f"no {field_name} contains {expected_text!r}; the run reports"
                yield self._create_finding((field_name, number), finding + (reported or " nothing"))

    def _compare_actions(self, expected_actions: Mapping[str, str]) -> Iterator[UnmetExpectation]:
        """Yield a finding for each differing planned action, and for each unexpected change.

        A resource that `expected_actions` does not name must stay the same, or only be read.
        """
        if self.report.plan is None:
            yield self._create_finding(("plan",), "the run has no plan")
            return
        changes = self.report.plan.changes
        unmatched_changes = {change.urn: change for change in changes}
        for pattern, action in expected_actions.items():
            matching_changes = [
                change for change in changes if _has_match(pattern, *_get_names(change))
            ]
            if not matching_changes:
                planned = ", ".join(_get_names(change)[1] for change in changes) or "nothing"
                message = f"{pattern} is not in the plan, which has {planned}"
                yield self._create_finding(("plan", pattern), message)
            for change in matching_changes:
                unmatched_changes.pop(change.urn, None)
                if change.action != action:
                    planned = _describe_action(change)
                    message = f"{change.name}: expected {action}, planned {planned}"
                    yield self._create_finding(("plan", pattern), message)
        for change in unmatched_changes.values():
            # The expectation is strict: what it does not name has to stay the same.
            if change.action not in _ACTIONS_WITHOUT_CHANGE:
                message = f"{change.name}: expected no change, planned {_describe_action(change)}"
                yield self._create_finding(("plan",), message)

    def _compare_properties(
        self, name: str, values: Mapping[str, Any]
    ) -> Iterator[UnmetExpectation]:
        """Yield a finding for each property with another planned value than expected.

        Secret values, and values known only after apply, cannot be compared: each gives a finding.
        """
        change = self._find_change("properties", name)
        if isinstance(change, UnmetExpectation):
            yield change
            return
        changes_by_path = {planned.path: planned for planned in change.changes}
        for path, value in values.items():
            label, planned = f"{name}.{path}", changes_by_path.get(path)
            if planned is None:
                changed_paths = ", ".join(changes_by_path) or "nothing"
                message = f"the plan does not change {label}; it changes {changed_paths}"
            elif planned.secret:
                message = f"{label} is secret: a plan does not show its value"
            elif planned.unknown:
                message = f"{label} is only known after apply"
            elif not matches_expected(value, planned.after):
                message = f"{label}: expected {_format_value(value)}, planned "
                message += _format_value(planned.after)
            else:
                continue
            yield self._create_finding(("properties", name, path), message)

    def _compare_replacement_causes(
        self, name: str, paths: Sequence[str]
    ) -> Iterator[UnmetExpectation]:
        """Yield a finding unless exactly the properties `paths` force a planned replacement."""
        change = self._find_change("replaced_by", name)
        if isinstance(change, UnmetExpectation):
            yield change
        elif change.action != "replace":
            message = f"{name}: expected replace, planned {_describe_action(change)}"
            yield self._create_finding(("replaced_by", name), message)
        elif set(change.replace_paths) != set(paths):
            message = (
                f"{name}: expected a replacement because of {', '.join(paths)}, planned because "
            )
            message += f"of {', '.join(change.replace_paths) or 'nothing'}"
            yield self._create_finding(("replaced_by", name), message)

    def _compare_verdict(self, name: str, verdict: Verdict) -> Iterator[UnmetExpectation]:
        """Yield a finding if the gate has another verdict, or is unknown."""
        plan = self.report.plan
        gates = {gate.name: gate for gate in (plan.gates if plan else None) or ()}
        if name not in gates:
            message = f"unknown gate {name}; the plan's gates are {', '.join(gates) or 'none'}"
            yield self._create_finding(("gates", name), message)
        elif get_verdict(gates[name]) != verdict:
            gate_findings = "".join(f"\n  {finding}" for finding in gates[name].findings)
            message = f"gate {name}: expected {verdict}, got {get_verdict(gates[name])}"
            yield self._create_finding(("gates", name), message + gate_findings)

    def _compare_hourly_cost(
        self, expected_costs: Mapping[str, float]
    ) -> Iterator[UnmetExpectation]:
        """Yield a finding for each currency whose cost after the run differs or is unknown.

        Half a cent more or less is no difference. A plan that leaves nothing costs 0.
        """
        plan = self.report.plan
        after = plan.cost.after if plan is not None and plan.cost is not None else None
        cost = {} if after is None else after.sum_hourly_costs()
        # A plan that destroys everything has no currencies, and costs 0 in each.
        is_free = after is not None and not cost and not after.unknown
        for currency, amount in expected_costs.items():
            planned_amount = cost.get(currency, 0.0 if is_free else None)
            # Half a cent: test files have amounts with two decimals.
            if planned_amount is None or abs(planned_amount - amount) > 0.005:
                planned = "unknown" if planned_amount is None else planned_amount
                message = f"hourly cost in {currency}: expected {amount}, planned {planned}"
                yield self._create_finding(("hourly_cost", currency), message)

    def _compare_resource(self, name: str, values: Mapping[str, Any]) -> Iterator[UnmetExpectation]:
        """Yield a finding for each differing value of the matching resources, or if none match.

        `values` are the expected values by property path.
        """
        resources = self._find_resources(name)
        if not resources:
            addresses = (resource.address for resource in self.report.final_state.resources)
            message = f"{name} is not in the state, which has {', '.join(addresses) or 'nothing'}"
            yield self._create_finding(("resources", name), message)
        for resource in resources:
            for path, value in values.items():
                output = resource.outputs.get(property_paths.get_root(path))
                actual = None if output is None else _get_property(output, path)
                steps, label = ("resources", name, path), f"{resource.name}.{path}"
                yield from self._compare_value(steps, label, value, actual)

    def _compare_objects(
        self, kind: str, expected_objects: Sequence[ObjectInputs]
    ) -> Iterator[UnmetExpectation]:
        """Yield a finding for each missing, unexpected or differing object of one kind.

        An expected object without a status matches any status.
        """
        steps = ("objects", kind)
        objects_by_kind = {
            f"{platform}/{name}": objects
            for platform, kinds in self.report.final_state.objects.items()
            for name, objects in kinds.items()
        }
        if kind not in objects_by_kind:
            message = f"unknown kind {kind}; the kinds are {', '.join(objects_by_kind)}"
            yield self._create_finding(steps, message)
            return
        names = [platform_object["name"] for platform_object in objects_by_kind[kind]]
        unmatched = list(objects_by_kind[kind])
        for number, expected in enumerate(expected_objects):
            namesakes = [item for item in unmatched if item["name"] == expected.name]
            matching = [item for item in namesakes if expected.status in (None, item["status"])]
            if namesakes:
                # Also one with another status, so that it is not reported again as unexpected.
                unmatched.remove((matching or namesakes)[0])
            if matching:
                continue
            message = f"{expected.name} is not on the platform, which has "
            message += ", ".join(names) or "nothing"
            if namesakes:
                status = namesakes[0]["status"]
                message = f"{expected.name}: expected status {expected.status}, got {status}"
            elif expected.name in names:
                message = f"{expected.name} is listed more often than it exists"
            yield self._create_finding((*steps, number), message)
        for item in unmatched:
            yield self._create_finding(
                steps, f"unexpected object {item['name']} ({item['status']})"
            )

    def _compare_duration(self, expected: DurationInputs) -> Iterator[UnmetExpectation]:
        """Yield a finding for each expected bound, `at_least` or `at_most`, broken by the run."""
        duration_s = self.report.final_state.seconds
        for bound, bound_text in (("at_least", expected.at_least), ("at_most", expected.at_most)):
            if bound_text is None:
                continue
            bound_s = property_paths.parse_duration(bound_text)
            if duration_s < bound_s if bound == "at_least" else duration_s > bound_s:
                bound_words = bound.replace("_", " ")
                duration = format_duration(duration_s)
                message = f"the run should take {bound_words} {bound_text}, but took {duration}"
                yield self._create_finding(("takes", bound), message)

    def _compare_value(
        self, steps: tuple[str | int, ...], label: str, expected: Any, actual: OutputValue | None
    ) -> Iterator[UnmetExpectation]:
        """Yield a finding if the actual value is missing or does not match the expected one.

        None as `actual` means missing. `steps` locate the expectation below `expect`. A secret
        value is not shown.
        """
        if actual is None:
            yield self._create_finding(steps, f"{label} does not exist")
        elif not matches_expected(expected, actual.value):
            shown_value = "another value (secret)" if actual.secret else _format_value(actual.value)
            yield self._create_finding(
                steps, f"{label}: expected {_format_value(expected)}, got {shown_value}"
            )

    def _find_resources(self, pattern: str) -> list[ReportedResource]:
        resources = self.report.final_state.resources
        return [item for item in resources if _has_match(pattern, item.name, item.address)]

    def _list_known_names(self) -> list[str] | None:
        """Return the names and addresses of all resources in the old state, plan and program.

        None means that the run failed before its plan, so that the declarations are unknown.
        """
        plan, entries = self.report.plan, self.report.entries
        if plan is None and not entries:
            return None
        planned = [name for change in (plan.changes if plan else ()) for name in _get_names(change)]
        declared = [name for entry in entries or () for name in entry.resource_names]
        return [*self.report.initial_names, *planned, *declared]

    def _find_change(self, field_name: str, name: str) -> ResourceChange | UnmetExpectation:
        """Return the only change matched by `name`, or a finding if none or several match."""
        changes = () if self.report.plan is None else self.report.plan.changes
        matching_changes = [change for change in changes if _has_match(name, *_get_names(change))]
        if len(matching_changes) == 1:
            return matching_changes[0]
        problem = "is not in the plan"
        if matching_changes:
            problem = f"matches {counted(len(matching_changes), 'resource')}"
        return self._create_finding((field_name, name), f"{name} {problem}")

    def _create_finding(self, steps: tuple[str | int, ...], message: str) -> UnmetExpectation:
        """Return a finding at `steps` below the case's `expect`; no steps mean the case itself."""
        path = ("expect", *steps) if steps else ()
        return UnmetExpectation(self.case.get_position(*path), message)


def matches_expected(expected: Any, actual: Any) -> bool:
    """Return whether a property's value meets the expected value of a test case.

    Objects are compared by the expected keys alone, all other values completely. Integers equal
    floats of the same value: Pulumi's wire format has only doubles.
    """
    if isinstance(expected, Mapping):
        return isinstance(actual, Mapping) and all(
            matches_expected(value, actual.get(key, _MISSING)) for key, value in expected.items()
        )
    if isinstance(expected, list):
        if not isinstance(actual, list | tuple) or len(expected) != len(actual):
            return False
        return all(
            matches_expected(expected_item, actual_item)
            for expected_item, actual_item in zip(expected, actual, strict=True)
        )
    # In Python True equals 1, in YAML it does not.
    if isinstance(expected, bool) or isinstance(actual, bool):
        return expected is actual
    return bool(expected == actual)


def get_verdict(gate: GateResult) -> Verdict:
    """Return the verdict of a gate's result: passes, allowed, warns or stops."""
    if not gate.findings:
        return "passes"
    if gate.allowed:
        return "allowed"
    return "stops" if gate.level is GateLevel.MANDATORY else "warns"


def get_verdicts(plan: Plan | None) -> dict[str, Verdict]:
    """Return the verdicts of the plan's gates, by the gates' names; empty without a plan."""
    return {gate.name: get_verdict(gate) for gate in (plan.gates if plan else None) or ()}


def format_duration(seconds: float) -> str:
    """Return a duration in the format of test files: 1h2m3s, rounded to seconds."""
    total_seconds = round(seconds)
    hours, minutes = total_seconds // 3600, total_seconds // 60 % 60
    parts = ((hours, "h"), (minutes, "m"), (total_seconds % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def _get_names(change: ResourceChange) -> tuple[str, str]:
    """Return the resource's name in the program, and the address: SECTION.NAME, or NAME."""
    return change.name, get_address(change.type, change.urn)


def _has_match(pattern: str, *names: str) -> bool:
    """Return whether the pattern matches one of the names; `*` stands for any text."""
    return any(fnmatchcase(name, pattern) for name in names)


def _can_match(pattern: str, known_names: Iterable[str]) -> bool:
    """Return whether the pattern can mean one of the known names, which may contain `*` too."""
    return any(fnmatchcase(name, pattern) or fnmatchcase(pattern, name) for name in known_names)


def _format_value(value: Any) -> str:
    """Return a value in the format of test files, for a finding."""
    return repr(value) if isinstance(value, str) else json.dumps(value, default=str)


def _get_property(output: OutputValue, path: str) -> OutputValue | None:
    """Return the value at a property path of an output, or None if there is none."""
    value = output.value
    for step in property_paths.parse(path)[1:]:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return OutputValue(value, output.secret)


def _describe_action(change: ResourceChange) -> str:
    """Return the planned action for a message, with the properties behind a replacement.

    The action `same` is shown as `no change`.
    """
    if change.action == "same":
        return "no change"
    causes = ", ".join(change.replace_paths)
    return f"{change.action} (because of {causes})" if causes else str(change.action)


def _describe_ending(ending: str) -> str:
    """Return an ending as the words after "has" or "have", such as `been killed`."""
    return {"killed": "been killed", "cancelled": "been cancelled"}.get(
        ending, ending if ending in ("succeeded", "failed") else f"ended with {ending}"
    )
