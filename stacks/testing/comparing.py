"""What a run has done, held against what its case expects."""

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
from gpuform.stacks.engine.values import property_paths
from gpuform.stacks.operations.runs.results import OutputValue
from gpuform.stacks.review.value_text import counted
from gpuform.stacks.testing.cases import Case
from gpuform.stacks.testing.playing import address_of
from gpuform.stacks.testing.report import KILLED, Report, ResourceSeen

_DONE_BY_NOBODY = ("same", "read", "refresh")
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as expected, and where that is written."""

    place: SourcePosition
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def findings_of(case: Case, report: Report) -> list[Finding]:
    """All that is not as the case expects, without secrets; none where it passes."""
    redactor = Redactor(report.secrets)
    found = _Comparison(case, report).findings()
    return [replace(each, text=redactor.redact(each.text)) for each in found]


@dataclass(frozen=True, slots=True)
class _Comparison:
    case: Case
    report: Report

    def findings(self) -> Iterator[Finding]:
        expect = self.case.expect
        if self.report.wrong:
            yield from (Finding(self.case.place(*at), why) for at, why in self.report.wrong)
            return
        yield from self._ending()
        yield from self._events()
        yield from self._unread()
        if self.report.ending != "succeeded":
            yield from self._texts("error", expect.error or (), self.report.errors)
        yield from self._texts("warning", expect.warning or (), self.report.warnings)
        yield from self._of_plan(expect)
        yield from self._of_left(expect)
        if expect.takes is not None:
            yield from self._takes(expect.takes)

    def _of_plan(self, expect: ExpectInputs) -> Iterator[Finding]:
        if expect.plan is not None:
            yield from self._plan(expect.plan)
        for name, values in (expect.properties or {}).items():
            yield from self._properties(name, values)
        for name, paths in (expect.replaced_by or {}).items():
            yield from self._replaced_by(name, paths)
        for name, verdict in (expect.gates or {}).items():
            yield from self._gate(name, verdict)
        if expect.hourly_cost is not None:
            yield from self._cost(expect.hourly_cost)

    def _of_left(self, expect: ExpectInputs) -> Iterator[Finding]:
        for name, values in (expect.resources or {}).items():
            yield from self._resource(name, values)
        for number, name in enumerate(expect.absent or ()):
            if self._seen(name):
                yield self._found(("absent", number), f"{name} is in the state")
            elif (known := self._known()) is not None and not _is_one_of(name, known):
                text = f"{name} is absent, but nothing of this name was there or is declared"
                yield self._found(("absent", number), text)
        for name, value in (expect.outputs or {}).items():
            given = self.report.left.outputs.get(name)
            yield from self._value(("outputs", name), f"output {name}", value, given)
        for kind, wanted in (expect.objects or {}).items():
            yield from self._objects(kind, wanted)

    def _ending(self) -> Iterator[Finding]:
        expect, ending = self.case.expect, self.report.ending
        if expect.result is None and expect.error:
            if ending == "succeeded":
                yield self._found(("error",), "an error is expected, and the run has succeeded")
            return
        wanted = str(expect.result or "succeeded")
        if ending != wanted:
            said = "".join(f"\n{indent(text, '  ')}" for text in self.report.errors)
            steps = ("result",) if expect.result else ()
            text = f"the run is expected to have {_ended(wanted)}, and it has {_ended(ending)}"
            yield self._found(steps, text + said)

    def _events(self) -> Iterator[Finding]:
        """An event that did not happen tests nothing."""
        for number in self.report.unplayed:
            event = (self.case.inputs.events or ())[number]
            moments = (event.at and f"at {event.at}", event.on and f"on {event.on}")
            when = next(filter(None, moments), "before the run")
            took = durations_text(self.report.left.seconds)
            over = "was killed" if self.report.ending == KILLED else f"was over after {took}"
            text = f"the event {when} did not happen: the run {over}"
            yield Finding(self.case.place("events", number), text)
        for number, text in self.report.misses.items():
            yield Finding(self.case.place("events", number), text)
        for number, why in self.report.refused.items():
            text = f"the event cannot happen: {why}"
            yield Finding(self.case.place("events", number), text)

    def _unread(self) -> Iterator[Finding]:
        """Outputs that the case itself gives of stacks that the program does not read."""
        plan, inputs = self.report.plan, self.case.inputs
        if plan is None or plan.errors or (inputs.run or "up") not in ("up", "preview"):
            return
        for name in inputs.stack_references or {}:
            whole = f"organization/{name.removeprefix('organization/')}"
            if whole not in plan.stack_references and self.case.says("stack_references", name):
                read = ", ".join(plan.stack_references) or "no stack"
                text = f"the program does not read {name}; it reads {read}"
                yield Finding(self.case.place("stack_references", name), text)

    def _texts(self, what: str, wanted: Iterable[str], said: Sequence[str]) -> Iterator[Finding]:
        plain = [" ".join(text.split()) for text in said]
        for number, text in enumerate(wanted):
            if not any(" ".join(text.split()) in each for each in plain):
                told = "".join(f"\n{indent(each, '  ')}" for each in said) or " nothing"
                found = f"no {what} says {text!r}; the run says{told}"
                yield self._found((what, number), found)

    def _plan(self, wanted: Mapping[str, str]) -> Iterator[Finding]:
        if self.report.plan is None:
            yield self._found(("plan",), "there is no plan")
            return
        changes = self.report.plan.changes
        left = {change.urn: change for change in changes}
        for pattern, action in wanted.items():
            met = [each for each in changes if _is_named(pattern, *_names(each))]
            if not met:
                near = ", ".join(_names(each)[1] for each in changes) or "nothing"
                text = f"{pattern} is not in the plan; it has {near}"
                yield self._found(("plan", pattern), text)
            for change in met:
                left.pop(change.urn, None)
                if change.action != action:
                    text = f"{action} is expected of {change.name}, and the plan is to"
                    yield self._found(("plan", pattern), f"{text} {_doing(change)}")
        for change in left.values():
            if change.action not in _DONE_BY_NOBODY:
                text = f"{change.name} is not named, and the plan is to {_doing(change)}"
                yield self._found(("plan",), text)

    def _properties(self, name: str, values: Mapping[str, Any]) -> Iterator[Finding]:
        change = self._change("properties", name)
        if isinstance(change, Finding):
            yield change
            return
        by_path = {each.path: each for each in change.changes}
        for path, value in values.items():
            found = by_path.get(path)
            steps = ("properties", name, path)
            if found is None:
                text = f"the plan changes nothing of {name}.{path}"
                yield self._found(steps, f"{text}; it changes {', '.join(by_path) or 'nothing'}")
            elif found.secret:
                yield self._found(steps, f"{name}.{path} is secret: a plan has no value of it")
            elif found.unknown:
                yield self._found(steps, f"{name}.{path} is known after apply only")
            elif not is_as(value, found.after):
                text = f"{name}.{path} is expected to become {_shown(value)}"
                text += f", and becomes {_shown(found.after)}"
                yield self._found(steps, text)

    def _replaced_by(self, name: str, paths: Sequence[str]) -> Iterator[Finding]:
        change = self._change("replaced_by", name)
        if isinstance(change, Finding):
            yield change
        elif change.action != "replace":
            text = f"a replacement of {name} is expected, and the plan is to {_doing(change)}"
            yield self._found(("replaced_by", name), text)
        elif set(change.replace_paths) != set(paths):
            forced = ", ".join(change.replace_paths) or "nothing"
            wanted = ", ".join(paths)
            text = f"{wanted} is expected to force the replacement of {name}, and {forced} does"
            yield self._found(("replaced_by", name), text)

    def _gate(self, name: str, verdict: Verdict) -> Iterator[Finding]:
        plan = self.report.plan
        gates = {each.name: each for each in (plan.gates if plan else None) or ()}
        if name not in gates:
            text = f"no gate {name} has looked at the plan; there is {', '.join(gates) or 'none'}"
            yield self._found(("gates", name), text)
        elif verdict_of(gates[name]) != verdict:
            said = "".join(f"\n  {each}" for each in gates[name].findings)
            text = f"gate {name}: {verdict} is expected, and it {_says(verdict_of(gates[name]))}"
            yield self._found(("gates", name), text + said)

    def _cost(self, wanted: Mapping[str, float]) -> Iterator[Finding]:
        plan = self.report.plan
        after = plan.cost.after if plan is not None and plan.cost is not None else None
        cost = {} if after is None else after.sum_hourly_costs()
        is_free = after is not None and not cost and not after.unknown
        for currency, amount in wanted.items():
            given = cost.get(currency, 0.0 if is_free else None)
            if given is None or abs(given - amount) > 0.005:
                now = "nothing is known of it" if given is None else f"it is {given}"
                text = f"an hour is expected to cost {amount} {currency}, and {now}"
                yield self._found(("hourly_cost", currency), text)

    def _resource(self, name: str, values: Mapping[str, Any]) -> Iterator[Finding]:
        met = self._seen(name)
        if not met:
            there = ", ".join(each.address for each in self.report.left.resources) or "nothing"
            yield self._found(("resources", name), f"{name} is not in the state; it has {there}")
        for resource in met:
            for path, value in values.items():
                root = property_paths.get_root(path)
                whole = resource.outputs.get(root)
                given = None if whole is None else _part(whole, path)
                what = f"{resource.name}.{path}"
                yield from self._value(("resources", name, path), what, value, given)

    def _objects(self, kind: str, wanted: Sequence[ObjectInputs]) -> Iterator[Finding]:
        steps = ("objects", kind)
        known = {
            f"{platform}/{name}": objects
            for platform, kinds in self.report.left.objects.items()
            for name, objects in kinds.items()
        }
        if kind not in known:
            yield self._found(steps, f"there is no {kind}; there is {', '.join(known)}")
            return
        left = list(known[kind])
        for number, each in enumerate(wanted):
            of_name = [one for one in left if one["name"] == each.name]
            found = next((one for one in of_name if each.status in (None, one["status"])), None)
            if found is not None:
                left.remove(found)
            elif of_name:
                left.remove(of_name[0])
                text = f"{each.name} is expected to be {each.status}, and is {of_name[0]['status']}"
                yield self._found((*steps, number), text)
            else:
                names = [one["name"] for one in known[kind]]
                text = (
                    f"{each.name} is not on the platform; there is {', '.join(names) or 'nothing'}"
                )
                if each.name in names:
                    text = f"{each.name} is expected once more than it is on the platform"
                yield self._found((*steps, number), text)
        for one in left:
            yield self._found(steps, f"{one['name']} is there too ({one['status']})")

    def _takes(self, wanted: DurationInputs) -> Iterator[Finding]:
        took = self.report.left.seconds
        for bound, text in (("at_least", wanted.at_least), ("at_most", wanted.at_most)):
            if text is None:
                continue
            limit = property_paths.parse_duration(text)
            if took < limit if bound == "at_least" else took > limit:
                words = bound.replace("_", " ")
                told = (
                    f"the run is expected to take {words} {text}, and took {durations_text(took)}"
                )
                yield self._found(("takes", bound), told)

    def _value(
        self, steps: tuple[str | int, ...], what: str, wanted: Any, given: OutputValue | None
    ) -> Iterator[Finding]:
        if given is None:
            yield self._found(steps, f"there is no {what}")
        elif not is_as(wanted, given.value):
            is_now = "it is not (it is secret)" if given.secret else f"it is {_shown(given.value)}"
            yield self._found(steps, f"{what} is expected to be {_shown(wanted)}, and {is_now}")

    def _seen(self, pattern: str) -> list[ResourceSeen]:
        """The resources of that name in the state."""
        seen = self.report.left.resources
        return [each for each in seen if _is_named(pattern, each.name, each.address)]

    def _known(self) -> list[str] | None:
        """The names and addresses of all that was there, is planned or declared.

        None where a program in Python has not come to a plan: nobody knows what it declares.
        """
        plan, entries = self.report.plan, self.report.entries
        if plan is None and not entries:
            return None
        planned = [name for each in (plan.changes if plan else ()) for name in _names(each)]
        declared = [name for each in entries or () for name in each.names]
        return [*self.report.before, *planned, *declared]

    def _change(self, what: str, name: str) -> ResourceChange | Finding:
        changes = () if self.report.plan is None else self.report.plan.changes
        met = [each for each in changes if _is_named(name, *_names(each))]
        if len(met) == 1:
            return met[0]
        how = "is not in the plan" if not met else f"means {counted(len(met), 'resource')}"
        return self._found((what, name), f"{name} {how}")

    def _found(self, steps: tuple[str | int, ...], text: str) -> Finding:
        return Finding(self.case.place(*(("expect", *steps) if steps else ())), text)


def is_as(wanted: Any, given: Any) -> bool:
    """Whether a value is as expected: of an object the keys that are named, of the rest all.

    Numbers are equal whatever their type: Pulumi's wire knows only doubles.
    """
    if isinstance(wanted, Mapping):
        return isinstance(given, Mapping) and all(
            is_as(value, given.get(key, _MISSING)) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        if not isinstance(given, list | tuple) or len(wanted) != len(given):
            return False
        return all(is_as(one, other) for one, other in zip(wanted, given, strict=True))
    if isinstance(wanted, bool) or isinstance(given, bool):
        return wanted is given
    return bool(wanted == given)


def verdict_of(gate: GateResult) -> Verdict:
    """What a gate says, in a word."""
    if not gate.findings:
        return "passes"
    if gate.allowed:
        return "allowed"
    return "stops" if gate.level is GateLevel.MANDATORY else "warns"


def durations_text(seconds: float) -> str:
    """1h2m3s, as test files have it."""
    whole = round(seconds)
    parts = ((whole // 3600, "h"), (whole // 60 % 60, "m"), (whole % 60, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"


def _is_named(pattern: str, *names: str) -> bool:
    """Whether one of the names is meant; * stands for any text."""
    return any(fnmatchcase(name, pattern) for name in names)


def _is_one_of(pattern: str, known: Iterable[str]) -> bool:
    """Whether a pattern can mean one of these names, in which * stands for any text too."""
    return any(fnmatchcase(name, pattern) or fnmatchcase(pattern, name) for name in known)


def _names(change: ResourceChange) -> tuple[str, str]:
    return change.name, address_of(change.type, change.urn)


def _shown(value: Any) -> str:
    """A value as test files have it."""
    return repr(value) if isinstance(value, str) else json.dumps(value, default=str)


def _part(whole: OutputValue, path: str) -> OutputValue | None:
    value = whole.value
    for step in property_paths.parse(path)[1:]:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return OutputValue(value, whole.secret)


def _doing(change: ResourceChange) -> str:
    if change.action == "same":
        return "leave it as it is"
    forced = ", ".join(change.replace_paths)
    return f"{change.action} it: {forced} forces that" if forced else f"{change.action} it"


def _ended(ending: str) -> str:
    return {"killed": "been killed", "cancelled": "been cancelled"}.get(
        ending, ending if ending in ("succeeded", "failed") else f"ended with {ending}"
    )


def _says(verdict: Verdict) -> str:
    return {"allowed": "is allowed to be passed"}.get(verdict, verdict)


def exercised(plan: Plan | None) -> dict[str, Verdict]:
    """The gates that have looked at a plan, with what they say."""
    return {each.name: verdict_of(each) for each in (plan.gates if plan else None) or ()}
