"""`stacks.yaml`: the stacks that are planned and applied together, and the gates over them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import Field

from gpuform.schemas.gates import GateInputs, gate_name_problems
from gpuform.schemas.models import InputModel, Problem

OF_ONE_STACK: Final = ("not_busy", "no_open_ports", "certified")
"""Rules that ask what only a run of one stack knows."""


class StackEntryInputs(InputModel):
    """One folder's stacks."""

    folder: str = Field(
        min_length=1,
        description="The project's folder, from the file's own folder; with * for any text several "
        "of them.",
        examples=["network", "clusters/*"],
    )
    stack: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the stack; every stack that has a Pulumi.STACK.yaml in the folder "
        "when not given.",
        examples=["prod"],
    )
    after: list[str] | None = Field(
        default=None,
        description="Other stacks, as PROJECT/STACK, that come before it though it reads none of "
        "their outputs.",
        examples=[["network/prod"]],
    )


class StacksInputs(InputModel):
    """The file of stacks."""

    stacks: list[StackEntryInputs] = Field(
        min_length=1,
        description="The stacks. Their order does not matter: it comes from what they read of each "
        "other.",
        examples=[[{"folder": "network", "stack": "prod"}]],
    )
    gates: dict[str, GateInputs] | None = Field(
        default=None,
        description="Gates that the plan of all stacks has to pass as one, beside those of each "
        "project; as in gates.yaml.",
        examples=[{"budget": {"max_hourly_cost": {"amount": 900, "currency": "USD"}}}],
    )

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        gates = values.get("gates")
        if not isinstance(gates, Mapping):
            return
        yield from gate_name_problems(gates)
        for name, gate in gates.items():
            for rule in OF_ONE_STACK:
                if isinstance(gate, Mapping) and gate.get(rule) is not None:
                    reason = "is a rule over one stack: write it in the gates.yaml of the projects"
                    yield Problem(f"gates.{name}.{rule}", reason)
