"""Evaluate the gates of a project over a plan, or of saved plans, and find which of them block.

The planning operations call this module, and `gpuform review`, perhaps on another machine, with the
gates of a file, of a git revision, or of the project in the current folder. It calls the rules in
`rules`, Python functions of the project, and its Rego policies through the program `opa`.
"""

import importlib
import json
import shutil
import subprocess
import sys
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.context import RunContext, get_run_context
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import GateResult, Plan, Waiver
from gpuform.stacks.engine.project import find_project, import_project_modules
from gpuform.stacks.gates.base_branch import open_project_gates
from gpuform.stacks.gates.facts import UsageMonitor, find_uncertified
from gpuform.stacks.gates.file import Gate, read_gates, read_project_gates
from gpuform.stacks.gates.rules import (
    COST_RULES,
    OVER_PLANS,
    describe_rehearsal,
    find_open_ports,
    is_matching_resource,
    list_unpriced_growth,
)
from gpuform.stacks.pricing import PriceBook, add_prices


@dataclass(frozen=True, slots=True)
class GateEvaluator:
    """Evaluate gates over plans.

    `allowed` are the permissions of this run, `program` is the folder of the rules in Python.
    Without `monitoring`, as in a review on another machine, the findings saved in the plan are used
    again.
    """

    gates: Sequence[Gate]
    allowed: Collection[str]
    program: Path
    monitoring: UsageMonitor | None = None
    today: date = field(default_factory=lambda: datetime.now(UTC).date())
    """The day in UTC, which decides about waivers."""

    def __post_init__(self) -> None:
        """Raise EngineError for a permission that lifts no gate."""
        permissions_of_gates = {gate.permission for gate in self.gates}
        requested = {name for name in self.allowed if name.startswith(permissions.GATE)}
        # A misspelled permission would lift nothing, without a word.
        if requested - permissions_of_gates:
            raise EngineError(
                f"unknown gates: {', '.join(sorted(requested - permissions_of_gates))}",
                hint=f"the project's gates are {', '.join(sorted(permissions_of_gates))}"
                if permissions_of_gates
                else "the project has no gates.yaml",
            )

    def has_rule(self, rule: str) -> bool:
        """Return True if one of the gates has this rule."""
        return any(gate.rule == rule for gate in self.gates)

    def evaluate(self, plan: Plan) -> Plan:
        """Return the plan with the result of every gate. A refresh is returned unchanged.

        With a gate on cost, growing costs without a price are added to the unchecked items.
        """
        if not self.gates or plan.operation == "refresh":
            return plan
        gates = tuple(self._evaluate_gate(gate, plan) for gate in self.gates)
        judges_cost = any(gate.rule in COST_RULES for gate in self.gates)
        unpriced = list_unpriced_growth(plan) if judges_cost else []
        notes = (f"the cost, for the cost gates: {item}" for item in unpriced)
        unchecked = tuple(dict.fromkeys((*plan.unchecked, *notes)))
        return plan.model_copy(update={"gates": gates, "unchecked": unchecked})

    def _evaluate_gate(self, gate: Gate, plan: Plan) -> GateResult:
        """Return the gate's result; `allowed` if it has findings and the run the permission."""
        # Two changes can lead to one finding.
        findings = tuple(dict.fromkeys(self._find_problems(gate, plan)))
        return GateResult(
            name=gate.name,
            rule=gate.rule,
            level=gate.level,
            findings=findings,
            allowed=bool(findings) and gate.permission in self.allowed,
            reason=gate.reason,
            permission=gate.permission,
            source=gate.source,
            note=describe_rehearsal(plan) if gate.rule == "rehearsal" and not findings else "",
            waiver=self._mark_ended_waiver(gate.waiver),
        )

    def _mark_ended_waiver(self, waiver: Waiver | None) -> Waiver | None:
        """Return the waiver, with `is_over` set after the waiver's last day."""
        if waiver is None or self.today <= date.fromisoformat(waiver.until):
            return waiver
        return waiver.model_copy(update={"is_over": True})

    def _find_problems(self, gate: Gate, plan: Plan) -> Iterable[str]:
        """Return the findings of a gate's rule about the gate's resources (all without a list).

        Rules in Python and Rego and the rules on cost are about the complete plan, whatever the
        list.
        """
        changes = plan.changes
        if gate.resources:
            changes = tuple(
                change for change in changes if is_matching_resource(change, gate.resources)
            )
        if gate.rule == "python":
            return _call_python_rule(plan, gate.value, self.program)
        if gate.rule == "rego":
            return find_rego_problems(plan, gate.value, self.program)
        if gate.rule == "no_open_ports":
            return find_open_ports(plan.exposures, gate.value, gate.resources)
        if gate.rule == "certified":
            return find_uncertified(plan.proofs, gate.resources)
        if gate.rule == "not_busy":
            if self.monitoring is None:
                return _get_saved_findings(gate, plan)
            return self.monitoring.find_usage(changes, gate.value)
        return OVER_PLANS[gate.rule](plan, changes, gate.value)


def allow_gates(gates: Iterable[GateResult], allowed: Collection[str]) -> tuple[GateResult, ...]:
    """Return the results, with the permissions in `allowed` applied."""
    return tuple(
        gate.model_copy(update={"allowed": True})
        if gate.findings and gate.permission in allowed
        else gate
        for gate in gates
    )


def list_blocking_gates(plan: Plan) -> list[GateResult]:
    """List the results of blocking gates in the plan."""
    return [gate for gate in plan.gates or () if gate.is_blocking]


def _get_saved_findings(gate: Gate, plan: Plan) -> Iterable[str]:
    """Return the gate's findings in the saved plan; without a result, a demand for a preview."""
    for result in plan.gates or ():
        if result.name == gate.name and result.rule == gate.rule:
            return result.findings
    return ("only a plan of `gpuform preview` shows whether resources are in use",)


def _call_python_rule(plan: Plan, function: str, program: Path) -> list[str]:
    """Call the rule MODULE:NAME in the program's folder, and return the findings.

    A rule that raises an error has the error as its finding, and so blocks the plan.
    """
    module, _, name = function.partition(":")
    environ = get_run_context().environ
    # What is printed on stdout may be JSON.
    with redirect_stdout(sys.stderr), import_project_modules(program, environ):
        try:
            rule = getattr(importlib.import_module(module), name)
            findings = rule(plan)
            return _require_texts(findings)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it may be anything
            return [f"{function} failed: {_format_exception(error)}"]


def _require_texts(findings: object) -> list[str]:
    """Return a rule's findings as a list of texts; None means none.

    Raises TypeError for a single text or a value that is not iterable.
    """
    if findings is None:
        return []
    # A single text would count as one finding for each letter.
    if isinstance(findings, str) or not isinstance(findings, Iterable):
        raise TypeError("a rule must yield strings, or return a list of strings")
    return [str(finding) for finding in findings]


def _format_exception(error: BaseException) -> str:
    """Format an exception with type, message, and the file and line of the raise."""
    frames = traceback.extract_tb(error.__traceback__)
    location = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{location}"


def evaluate_gates(
    plans: Sequence[Plan],
    file: Path | None,
    allow: Sequence[str],
    environ: Mapping[str, str],
    gates_from: str | None = None,
) -> list[Plan]:
    """Return the plans with the results of the gates.

    The gates are read from `file`, or from the git revision `gates_from`. Without both, a plan
    keeps the results that it has. A plan without results is then evaluated by the gates of the
    project in the current folder, if it is a plan of this project. A gate that `allow` or the
    environment names does not block.

    Raises:
        EngineError: a file of gates or prices is wrong.
    """
    allowed = RunContext(environ).with_permissions(allow).permissions
    if file is not None:
        evaluator = GateEvaluator(_read_gates(file), allowed, file.parent)
        return [evaluator.evaluate(plan) for plan in plans]
    if gates_from is not None:
        return _evaluate_base_gates(plans, gates_from, allowed)
    return [_allow_gates(_evaluate_project_gates(plan), allowed) for plan in plans]


def _evaluate_base_gates(
    plans: Sequence[Plan], revision: str, allowed: frozenset[str]
) -> list[Plan]:
    """Evaluate the gates of this folder's project at a git revision.

    Raises:
        EngineError: a plan is of another project, or git cannot show the revision.
    """
    project = find_project(Path.cwd())
    for plan in plans:
        if plan.project != project.name:
            raise EngineError(
                f"the plan of {plan.project}/{plan.stack} is not one of project {project.name}, "
                "whose gates --gates-from reads",
                hint="run the command in the folder of the plan's project",
            )
    with open_project_gates(project, revision) as base:
        evaluator = GateEvaluator(base.gates, allowed, base.program)
        update = {"weakened_gates": base.weakened}
        return [evaluator.evaluate(plan.model_copy(update=update)) for plan in plans]


def _read_gates(file: Path) -> Sequence[Gate]:
    """Read the gates of the file. Raises EngineError, also without the file."""
    if not file.exists():
        raise EngineError(f"the gates file {file} does not exist")
    return read_gates(file, str(file))


def _evaluate_project_gates(plan: Plan) -> Plan:
    """Evaluate the gates of this folder's project, unless the plan has results of gates already.

    The plan of another project, or outside of one, stays as it is.
    """
    if plan.gates is not None:
        return plan
    try:
        project = find_project(Path.cwd())
    except EngineError:
        return plan
    # The gates of another project are not in this folder.
    if project.name != plan.project:
        return plan
    # A preview of the Pulumi CLI has no costs, which gates may limit.
    if plan.basis is None and plan.cost is None:
        plan = add_prices(plan, PriceBook.read(project.directory))
    return GateEvaluator(read_project_gates(project.directory), (), project.program).evaluate(plan)


def _allow_gates(plan: Plan, allowed: frozenset[str]) -> Plan:
    """Return the plan with the permissions in `allowed` applied to the plan's gates, if any."""
    if plan.gates is None:
        return plan
    return plan.model_copy(update={"gates": allow_gates(plan.gates, allowed)})


QUERY: Final = "data.gpuform.deny"
TIME_LIMIT_S: Final = 60.0
"""How long one evaluation may take. A policy over 10,000 resources takes about a second."""
_MAX_ERRORS: Final = 3
_VARIABLES: Final = ("PATH", "HOME", "TMPDIR")
"""The variables that opa gets: policies can read the environment, which may have credentials."""
_INSTALL_PAGE: Final = "https://www.openpolicyagent.org/docs/latest/#running-opa"


def find_rego_problems(plan: Plan, policies: str, project: Path) -> Iterator[str]:
    """Yield the messages in `deny` of the policies for a plan.

    `policies` is a file, or a folder with files *.rego, relative to the folder `project`. A gate
    that cannot decide has a finding: `opa` or the policies are missing, wrong, or take too long.
    """
    path = project / policies
    program = shutil.which("opa")
    if not _exists(path):
        yield f"{policies} does not exist in {project.name}"
    elif program is None:
        yield f"{policies} needs the program opa, which is not in PATH: see {_INSTALL_PAGE}"
    else:
        yield from _run_opa(program, plan, policies, path)


def _exists(path: Path) -> bool:
    """Return whether a path exists; False for a text which cannot be a path."""
    try:
        return path.exists()
    except OSError:
        return False


def _run_opa(program: str, plan: Plan, policies: str, path: Path) -> Iterator[str]:
    """Yield a gate's findings, from one run of opa on the plan."""
    environ = get_run_context().environ
    command = [
        *(program, "eval", "--format", "json", "--stdin-input"),
        # An error in a builtin makes a rule undefined, which would let the plan pass.
        "--strict-builtin-errors",
        *("--data", str(path), QUERY),
    ]
    try:
        done = subprocess.run(  # noqa: S603 - the project's own policies, as its Python gates
            command,
            input=plan.model_dump_json().encode(),
            capture_output=True,
            check=False,
            timeout=TIME_LIMIT_S,
            env={name: environ[name] for name in _VARIABLES if name in environ},
        )
    except subprocess.TimeoutExpired:
        yield f"{policies}: opa did not end within {TIME_LIMIT_S:.0f} s"
        return
    except OSError as error:
        yield f"{policies}: opa cannot be started: {error.strerror}"
        return
    try:
        answer = json.loads(done.stdout or b"{}")
        errors, result = answer.get("errors") or (), answer.get("result") or ()
    except (ValueError, AttributeError):
        errors, result = (), ()
        answer = None
    if answer is None or errors or done.returncode != 0:
        yield f"{policies}: opa failed: {_describe_failure(errors, done.stderr)}"
        return
    yield from _read_denials(policies, result)


def _read_denials(policies: str, result: Sequence[Any]) -> Iterator[str]:
    """Yield the messages in the answer's value of `deny`; one finding without such a set."""
    try:
        denials = result[0]["expressions"][0]["value"]
    # An answer without a result means that the query is undefined.
    except (IndexError, KeyError, TypeError):
        denials = None
    if not isinstance(denials, list):
        yield f"{policies} defines no set `deny` in the package gpuform: write `deny contains ...`"
        return
    for denial in denials:
        message = denial.get("msg", denial) if isinstance(denial, dict) else denial
        yield message if isinstance(message, str) else json.dumps(message, sort_keys=True)


def _describe_failure(errors: Sequence[Any], stderr: bytes) -> str:
    """Return the first errors of an answer with positions, or the last line of stderr."""
    texts = []
    for error in errors[:_MAX_ERRORS]:
        location = error.get("location") or {}
        file = location.get("file")
        position = f"{Path(file).name}:{location.get('row')}: " if file else ""
        texts.append(f"{position}{error.get('message', error)}")
    lines = stderr.decode(errors="replace").strip().splitlines()
    return "; ".join(texts) or (lines[-1] if lines else "it gave no answer")
