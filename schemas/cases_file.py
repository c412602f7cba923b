"""Define the files of `gpuform test`: cases, each with a run on the emulator and expectations.

Read by `gpuform.stacks.testing`. A case describes the stack, its start, and the events during the
run.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import AfterValidator, Field

from gpuform.schemas.models import InputModel, Problem, optional_field
from gpuform.schemas.topology import Duration

_CASE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_REQUEST: Final = re.compile(r"(GET|POST|PUT|PATCH|DELETE) \S+")

EVENT_KINDS: Final = (
    *("stock_out", "status", "credit_gone", "node_not_ready", "proposal", "job"),
    *("fault", "control", "request", "kill"),
)
"""The kinds of events. Each event has exactly one of them."""


def _validate_request_pattern(request_pattern: str) -> str:
    """Return a method and a regular expression of a path: `POST /clusters$`. Else ValueError."""
    if not _REQUEST.fullmatch(request_pattern):
        raise ValueError("must be a method and a path, such as POST /compute/clusters$")
    try:
        re.compile(request_pattern)
    except re.error as error:
        raise ValueError(f"has no regular expression for its path: {error}") from None
    return request_pattern


_HOURS_BY_UNIT: Final = {"ms": 1 / 3_600_000, "s": 1 / 3600, "m": 1 / 60, "h": 1.0}
_MAX_HOURS: Final = 87_600
"""Ten years. The clock of the emulator has no end, but dates in Python have."""


def _validate_emulated_duration(duration: str) -> str:
    """Return a duration such as `90s` if at most `_MAX_HOURS` long. Raises ValueError otherwise."""
    # the form itself is checked by Duration
    parts = re.findall(r"([0-9.]+)(ms|s|m|h)", duration)
    if sum(float(number) * _HOURS_BY_UNIT[unit] for number, unit in parts) > _MAX_HOURS:
        raise ValueError(f"{duration} is too long: the most is {_MAX_HOURS}h")
    return duration


EmulatedDuration = Annotated[Duration, AfterValidator(_validate_emulated_duration)]
"""How far the clock of the emulator moves."""

RequestPattern = Annotated[str, AfterValidator(_validate_request_pattern)]

_T = TypeVar("_T")
NonEmpty = Annotated[_T, Field(min_length=1)]
"""A value that is not empty: an expectation of nothing would pass whatever the run does."""

Action = Literal["same", "create", "update", "replace", "delete", "import", "read"]
"""The action of the plan on a resource."""

Verdict = Literal["passes", "warns", "stops", "allowed"]
"""The result of a gate."""

RunResult = Literal[
    "succeeded",
    "failed",
    "cancelled",
    "policy-violation",
    "unchecked",
    "out-of-credit",
    "end-unknown",
    "killed",
]
"""The result of a run."""

Operation = Literal["preview", "up", "refresh", "destroy", "expire", "repair"]


class StartInputs(InputModel):
    """Where a case starts; by default with an empty stack."""

    case: str | None = optional_field(
        "The case of the same file whose objects and state the case starts from.",
        examples=["comes_up"],
    )
    state: str | None = optional_field(
        "A state file, relative to the test file, as `gpuform stack export` "
        "writes it. The emulator starts with the objects of the state.",
        examples=["states/prod.json"],
    )
    later: EmulatedDuration | None = optional_field(
        "How much later the run begins, by the platform's clock.", examples=["25h"]
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem if a test case starts both from another case and from a state."""
        if values.get("case") is not None and values.get("state") is not None:
            yield Problem("state", "a case starts from `case` or from `state`, not from both")


class StatusInputs(InputModel):
    """A status that an object shows from now on."""

    object: str = Field(description="Name of the object on the platform.", examples=["training"])
    status: str = Field(
        description="The new status, as the platform names it.", examples=["Degraded"]
    )


class NodeInputs(InputModel):
    """A node of a cluster."""

    cluster: str = Field(description="The cluster's name on the platform.", examples=["training"])
    node: str = Field(description="The node's name.", examples=["training-worker-0"])


class ProposalInputs(InputModel):
    """The repair of a node that the platform proposes."""

    cluster: str = Field(description="The cluster's name on the platform.", examples=["training"])
    node: str = Field(description="The node's name.", examples=["training-worker-1"])
    mode: str | None = optional_field(
        "How the node would be repaired; REMEDIATION_MODE_HOST_AWARE by default.",
        examples=["REMEDIATION_MODE_REBOOT_VM"],
    )
    reason: str | None = optional_field(
        "The platform's message about the proposal.", examples=["GPU fell off the bus"]
    )


class JobInputs(InputModel):
    """Work that runs on a cluster: a pod, or a job of Slurm."""

    cluster: str = Field(description="The cluster's name on the platform.", examples=["training"])
    name: str = Field(description="Name of the job.", examples=["pretraining"])
    node: str | None = optional_field(
        "The node that runs the job; by default any node with free GPUs.",
        examples=["training-worker-1"],
    )
    gpus: int | None = optional_field(
        "Number of GPUs that the job uses; none by default.", ge=0, examples=[8]
    )
    runs_for: EmulatedDuration | None = optional_field(
        "How long the job runs, by the platform's clock; by default it never ends.", examples=["2h"]
    )


class ControlInputs(InputModel):
    """A control of the emulator, for cases that no other event covers."""

    path: str = Field(
        description="Path of the control after /_emulator/; {NAME} stands for the id of the "
        "object of that name.",
        examples=["together/credit"],
    )
    body: dict[str, Any] | None = optional_field(
        "Body of the request.", examples=[{"exhausted": False}]
    )


class OutsideRequestInputs(InputModel):
    """A request of another person to the platform, as from the platform's console."""

    method: Literal["POST", "PUT", "PATCH", "DELETE"] = Field(
        description="The method.", examples=["DELETE"]
    )
    path: str = Field(
        description="The path on the emulator; {NAME} stands for the id of the object of that "
        "name.",
        examples=["/together/v1/compute/clusters/{training}"],
    )
    body: dict[str, Any] | None = optional_field(
        "Body of the request.", examples=[{"num_gpus": 32}]
    )


class EventInputs(InputModel):
    """An event on the platform or in the run. Each entry has exactly one kind of event."""

    at: EmulatedDuration | None = optional_field(
        "Time after the beginning of the run, by the platform's clock; before the "
        "run if neither `at` nor `on` is given.",
        examples=["10m"],
    )
    on: RequestPattern | None = optional_field(
        "The request of gpuform during which the event happens: after its effect, "
        "before its answer. A method, and a regular expression for the path.",
        examples=["POST /compute/clusters$"],
    )
    stock_out: str | None = optional_field(
        "The platform that runs out of GPUs.", examples=["together"]
    )
    status: StatusInputs | None = optional_field("The status that an object shows from now on.")
    credit_gone: str | None = optional_field(
        "The platform on which the account runs out of credit.", examples=["together"]
    )
    node_not_ready: NodeInputs | None = optional_field(
        "A node that Kubernetes reports as not ready from now on."
    )
    proposal: ProposalInputs | None = optional_field("A repair that the platform proposes.")
    job: JobInputs | None = optional_field("Work that begins on a cluster.")
    fault: dict[str, Any] | None = optional_field(
        "A fault of the emulator, as POST /_emulator/faults takes it.",
        examples=[{"method": "POST", "path": "/compute/clusters$", "status": 503}],
    )
    met: bool | None = optional_field(
        "Whether a request must meet the `fault`; true if not given. With false, "
        "the case fails when a request meets it.",
        examples=[False],
    )
    control: ControlInputs | None = optional_field("A control of the emulator.")
    request: OutsideRequestInputs | None = optional_field(
        "A request of somebody else to the platform."
    )
    kill: Literal[True] | None = optional_field("SIGKILL ends the run, without any notice.")

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem unless the event has one kind, and a fitting `at`, `on` and `met`.

        At most one of `at` and `on` may be declared, and a kill needs one; only a fault may have
        `met`.
        """
        given_events = [name for name in EVENT_KINDS if values.get(name) is not None]
        if len(given_events) != 1:
            event_kinds = ", ".join(EVENT_KINDS)
            yield Problem(
                given_events[1] if given_events else "", f"declare exactly one of {event_kinds}"
            )
        if values.get("at") is not None and values.get("on") is not None:
            yield Problem("on", "an event happens `at` a time or `on` a request, not both")
        if values.get("met") is not None and "fault" not in given_events:
            yield Problem("met", "is valid only with `fault`: remove it")
        if given_events == ["kill"] and values.get("at") is None and values.get("on") is None:
            yield Problem("kill", "requires `at` or `on`: no run exists before the run starts")


class ObjectInputs(InputModel):
    """An object that is on the platform."""

    name: str = Field(description="Name of the object on the platform.", examples=["training"])
    status: str | None = optional_field(
        "Status of the object; by default any status.", examples=["Ready"]
    )


class DurationInputs(InputModel):
    """How long something may take, by the platform's clock."""

    at_least: Duration | None = optional_field("The shortest allowed time.", examples=["5m"])
    at_most: Duration | None = optional_field("The longest allowed time.", examples=["45m"])

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem if neither `at_least` nor `at_most` is declared."""
        if not values:
            yield Problem("", "declare `at_least` or `at_most`")


class ExpectInputs(InputModel):
    """The expectations of a run. A property without an expectation is not compared."""

    result: RunResult | None = optional_field(
        "Result of the run. By default succeeded; if `error` is given, any result "
        "except succeeded.",
        examples=["policy-violation"],
    )
    error: list[NonEmpty[str]] | None = optional_field(
        "Texts that the errors and refusals of the run must contain, all together.",
        min_length=1,
        examples=[["no GPUs are free"]],
    )
    warning: list[NonEmpty[str]] | None = optional_field(
        "Texts that the warnings of the run must contain, all together.",
        min_length=1,
        examples=[["is not ready"]],
    )
    plan: dict[str, Action] | None = optional_field(
        "Action of the plan on each resource, by the resource's name or as SECTION.NAME; * in a "
        "name stands for any text. A resource without an entry must stay the same.",
        examples=[{"train": "update", "workers-*": "create"}],
    )
    properties: dict[str, NonEmpty[dict[str, Any]]] | None = optional_field(
        "New values of properties of changed resources, by property path.",
        min_length=1,
        examples=[{"train": {"num_gpus": 24}}],
    )
    replaced_by: dict[str, NonEmpty[list[str]]] | None = optional_field(
        "All properties that force the replacement of a replaced resource.",
        min_length=1,
        examples=[{"train": ["region"]}],
    )
    gates: dict[str, Verdict] | None = optional_field(
        "Expected results of gates.", min_length=1, examples=[{"budget": "stops"}]
    )
    hourly_cost: dict[str, float] | None = optional_field(
        "Cost of an hour of the stack once the plan is applied, by currency.",
        min_length=1,
        examples=[{"USD": 47.84}],
    )
    resources: dict[str, dict[str, Any]] | None = optional_field(
        "Resources in the state after the run, with some of their outputs, by property paths.",
        min_length=1,
        examples=[{"train": {"status": "Ready", "ready": True}}],
    )
    absent: list[str] | None = optional_field(
        "Resources that the state does not have after the run.", min_length=1, examples=[["train"]]
    )
    outputs: dict[str, Any] | None = optional_field(
        "Outputs of the stack.", min_length=1, examples=[{"status": "Ready"}]
    )
    objects: dict[str, list[ObjectInputs]] | None = optional_field(
        "All objects of a kind that are on a platform after the run, by "
        "PLATFORM/KIND; a further object fails the case.",
        min_length=1,
        examples=[{"together/clusters": [{"name": "training", "status": "Ready"}]}],
    )
    takes: DurationInputs | None = optional_field(
        "How long the run takes, by the platform's clock."
    )
    snapshot: bool | None = optional_field(
        "Whether plan, outputs and objects are compared with the file that "
        "`gpuform test --update` has written.",
        examples=[True],
    )


class CaseInputs(InputModel):
    """One run of the stack, from a start, with expectations."""

    # What has no value would test nothing, and nobody would see it.
    refuses_null: ClassVar[bool] = True
    retired_names: ClassVar[Mapping[str, str]] = {"command": "run", "variables": "config"}

    description: str | None = optional_field(
        "What the case shows.", examples=["More GPUs change it in place."]
    )
    stack: str | None = optional_field(
        "The stack whose Pulumi.STACK.yaml has the configuration; none by default.",
        examples=["prod"],
    )
    config: dict[str, Any] | None = optional_field(
        "Values of the configuration.", examples=[{"gpus": 16}]
    )
    secrets: dict[str, str] | None = optional_field(
        "Secret values of the configuration; no real ones.", examples=[{"token": "only-for-tests"}]
    )
    stack_references: dict[str, dict[str, Any]] | None = optional_field(
        "Outputs of other stacks that the stack of the case reads, by PROJECT/STACK.",
        examples=[{"network/prod": {"vpc_id": "vpc-1"}}],
    )
    start: StartInputs | None = optional_field("The start of the case; by default an empty stack.")
    run: Operation | None = optional_field(
        "The operation; up if not given. Every prompt is answered with yes.", examples=["preview"]
    )
    allow: list[str] | None = optional_field(
        "Permissions, as for --allow; cases cannot have real-schedulers.",
        examples=[["destroy-reserved"]],
    )
    target: list[str] | None = optional_field("As --target of the run.", examples=[["train"]])
    exclude: list[str] | None = optional_field("As --exclude of the run.", examples=[["data"]])
    replace: list[str] | None = optional_field("As --replace of the run.", examples=[["train"]])
    refresh: bool | None = optional_field("As --refresh of the run.", examples=[True])
    events: list[EventInputs] | None = optional_field(
        "What happens on the platform and to the run.",
        examples=[[{"at": "10m", "status": {"object": "training", "status": "Degraded"}}]],
    )
    expect: ExpectInputs | None = optional_field(
        "The expectations; by default that the run succeeds."
    )


class DefaultsInputs(InputModel):
    """Default values for all cases of the file."""

    stack: str | None = optional_field("As `stack` of a case.", examples=["prod"])
    config: dict[str, Any] | None = optional_field(
        "`config` of every case; a case adds values of its own.", examples=[{"gpus": 16}]
    )
    secrets: dict[str, str] | None = optional_field(
        "`secrets` of every case; a case adds values of its own.",
        examples=[{"token": "only-for-tests"}],
    )
    stack_references: dict[str, dict[str, Any]] | None = optional_field(
        "`stack_references` of every case; a case adds values of its own.",
        examples=[{"network/prod": {"vpc_id": "vpc-1"}}],
    )


class CasesInputs(InputModel):
    """A file of cases."""

    refuses_null: ClassVar[bool] = True

    defaults: DefaultsInputs | None = optional_field("Defaults of all cases.")
    cases: dict[str, CaseInputs] = Field(
        min_length=1,
        description="The cases by their names.",
        examples=[{"comes_up": {"expect": {"plan": {"train": "create"}}}}],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for each invalid name, missing start case and cycle of start cases."""
        cases = values.get("cases")
        if not isinstance(cases, Mapping):
            return
        for name, case in cases.items():
            if not _CASE_NAME.fullmatch(name):
                reason = "a name has letters, digits, hyphens and underscores"
                yield Problem(f"cases.{name}", reason)
            start = case.get("start") if isinstance(case, Mapping) else None
            start_case = start.get("case") if isinstance(start, Mapping) else None
            if isinstance(start_case, str) and start_case not in cases:
                reason = (
                    f"case {start_case!r} not found in this file: use one of {', '.join(cases)}"
                )
                yield Problem(f"cases.{name}.start.case", reason)
        yield from _find_start_cycles(cases)


def _find_start_cycles(cases: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem for each cycle of test cases in which every case starts from another one."""
    start_cases = {name: _get_start_case(case) for name, case in cases.items()}
    for name in cases:
        chain, current = [name], start_cases[name]
        while current in start_cases and current not in chain:
            chain.append(current)
            current = start_cases[current]
        # every member of a cycle finds the same cycle: report the cycle once
        if current == name and name == min(chain):
            reason = f"these cases start from each other: {' <- '.join([*chain, name])}"
            yield Problem(f"cases.{name}.start.case", reason)


def _get_start_case(case: Any) -> str | None:
    """Return the name of the case from which a declared case starts, or None."""
    start = case.get("start") if isinstance(case, Mapping) else None
    start_case = start.get("case") if isinstance(start, Mapping) else None
    return start_case if isinstance(start_case, str) else None
