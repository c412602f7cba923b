"""Define the gates and the price book of a project: rules for plans, and prices.

`gpuform.stacks.gates` evaluates `gates.yaml`, `gpuform.stacks.pricing` reads the price book.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import AfterValidator, Field, create_model

from gpuform.schemas.checking import suggest_name
from gpuform.schemas.models import (
    InputModel,
    Problem,
    optional_field,
    require_full_match,
)

M = TypeVar("M", bound=InputModel)


Currency = Annotated[
    str,
    require_full_match(
        "[A-Z]{3}", "must be a currency's code of three capital letters, such as USD"
    ),
]

HOURS_PER_MONTH: Final = 730
"""A twelfth of 365 days. All monthly costs are computed with it."""

BillingName = Literal[
    "on_demand", "reserved", "scheduled", "capacity_pool", "preemptible", "stopped"
]


_PLATFORM: Any = Field(description="The platform.", examples=["together"])


class GpuPriceInputs(InputModel):
    """The price of one GPU."""

    platform: str = _PLATFORM
    gpu_type: str = Field(
        min_length=1,
        description="The platform's name of the type; for scp the declared gpu_type or "
        "server_type_id.",
        examples=["H100_SXM"],
    )
    billing: BillingName | None = optional_field(
        "How the GPU is billed; on_demand if not declared.",
        examples=["on_demand", "reserved", "preemptible", "stopped"],
    )
    region: str | None = optional_field(
        "For this region only, where it overrides a price of all regions.",
        min_length=1,
        examples=["us-central-8"],
    )
    per_hour: float = Field(
        ge=0, description="Price of one GPU for an hour, in currency.", examples=[2.99]
    )


class StoragePriceInputs(InputModel):
    """The price of storage."""

    platform: str = _PLATFORM
    unit: Literal["TiB", "GB"] = Field(
        description="The unit that the platform measures by: TiB on together, GB on tensorone.",
        examples=["TiB"],
    )
    region: str | None = optional_field(
        "For this region only, where it overrides a price of all regions.",
        min_length=1,
        examples=["us-central-8"],
    )
    per_month: float = Field(
        ge=0, description="Price of one unit for a month of 730 hours, in currency.", examples=[60]
    )


class PriceBookInputs(InputModel):
    """A price book. The cost of anything without a price is unknown, not zero."""

    currency: Currency = Field(description="Currency of all prices, such as USD.", examples=["USD"])
    gpus: list[GpuPriceInputs] | None = optional_field(
        "Prices of GPUs.",
        examples=[[{"platform": "together", "gpu_type": "H100_SXM", "per_hour": 2.99}]],
    )
    storage: list[StoragePriceInputs] | None = optional_field(
        "Prices of storage.", examples=[[{"platform": "together", "unit": "TiB", "per_month": 60}]]
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for each second price of equal GPUs or equal storage."""
        key_fields = {
            "gpus": ("platform", "gpu_type", "billing", "region"),
            "storage": ("platform", "unit", "region"),
        }
        for section, names in key_fields.items():
            known_keys: set[tuple[Any, ...]] = set()
            prices = values.get(section)
            for index, price in enumerate(prices if isinstance(prices, list) else ()):
                key_values = {name: price.get(name) for name in names}
                if "billing" in key_values:
                    key_values["billing"] = key_values["billing"] or "on_demand"
                # no billing means on_demand: both spellings are the price of the same thing
                key = tuple(map(str, key_values.values()))
                if key in known_keys:
                    yield Problem(
                        f"{section}[{index}]", "already has a price: declare each price once"
                    )
                known_keys.add(key)


@cache
def build_price_book_model(platforms: tuple[str, ...]) -> type[PriceBookInputs]:
    """Return the model of a price book restricted to the names in `platforms`."""
    # the installed platforms decide, so that the schema of the file can list them
    platform_field: Any = {"platform": (Literal[platforms], _PLATFORM)}
    gpus: Any = _override_fields(GpuPriceInputs, platform_field)
    storage: Any = _override_fields(StoragePriceInputs, platform_field)
    fields = PriceBookInputs.model_fields
    return _override_fields(
        PriceBookInputs,
        {
            "gpus": (list[gpus] | None, fields["gpus"]),
            "storage": (list[storage] | None, fields["storage"]),
        },
    )


def _override_fields(model: type[M], fields: dict[str, Any]) -> type[M]:
    """Return a subclass of a pydantic model with `fields` in place of the model's own."""
    return create_model(model.__name__, __base__=model, __doc__=model.__doc__, **fields)


_PLAIN_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


_Function = Annotated[
    str,
    require_full_match(
        r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*",
        "must name a function as MODULE:NAME, such as policies:not_on_fridays",
    ),
]
_Percentage = Annotated[
    str, require_full_match(r"[0-9]+(\.[0-9]+)?%", "must be a percentage, such as 10%")
]


def _require_true(value: bool) -> bool:
    """Return True, the only allowed value of a gate's switch. Raises ValueError for False."""
    if not value:
        raise ValueError("must be true: remove the gate to disable it")
    return value


def _validate_day(day: str) -> str:
    """Return a day as YYYY-MM-DD. Raises ValueError otherwise."""
    try:
        # Python would also accept other forms of ISO 8601, such as 2026W051.
        if len(day) == len("2026-12-31"):
            date.fromisoformat(day)
            return day
    except ValueError:
        pass
    raise ValueError("must be a day, such as 2026-12-31")


class MaxCostInputs(InputModel):
    """The highest cost of a stack."""

    amount: float = Field(ge=0, description="The highest cost of an hour.", examples=[120])
    currency: Currency = Field(description="Currency of the amount.", examples=["USD"])


class NotBusyInputs(InputModel):
    """When capacity counts as in use."""

    above: float | None = optional_field(
        "GPUs are in use if their utilization is above this number, from 0 to 1; "
        "0.05 if not declared.",
        ge=0,
        le=1,
        examples=[0.05],
    )


class NoOpenPortsInputs(InputModel):
    """The ports that may be open nevertheless."""

    allowed: list[Annotated[int, Field(ge=0, le=65535)]] | None = optional_field(
        "Ports that any address may reach; none if not declared.", examples=[[443]]
    )


class RehearsalLimitInputs(InputModel):
    """The most that any rehearsed hazard may cost. At least one limit."""

    max_lost_gpus: int | None = optional_field(
        "The most GPUs that may be without work at one time.", ge=0, examples=[0]
    )
    max_gpu_hours_without_work: float | None = optional_field(
        "The most hours without work, summed over the GPUs.", ge=0, examples=[8]
    )
    jobs_ended: int | None = optional_field(
        "The most jobs that may end before they are done.", ge=0, examples=[0]
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for rehearsal limits without a single declared limit."""
        if all(values.get(name) is None for name in cls.model_fields):
            yield Problem("", f"has no limit: declare one of {', '.join(cls.model_fields)}")


WHOLE_PLAN_RULES: Final = frozenset(
    {"max_hourly_cost", "max_cost_increase", "python", "rego", "rehearsal"}
)
"""The rules about the complete plan, which `resources` cannot limit."""


class GateInputs(InputModel):
    """One gate: exactly one rule, and how to apply it."""

    rules: ClassVar[tuple[str, ...]] = (
        *("max_destroyed_gpus", "not_replaced", "allowed_regions", "allowed_gpu_types"),
        *("max_hourly_cost", "required_tags", "protected", "expiry_required"),
        *("not_busy", "no_open_ports", "max_repaired_nodes", "certified", "rehearsal"),
        *("max_cost_increase", "python", "rego"),
    )

    max_destroyed_gpus: int | None = optional_field(
        "The highest number of GPUs that one plan may remove.", ge=0, examples=[8]
    )
    not_replaced: list[Literal["running", "reserved"]] | None = optional_field(
        "Resources that must not be replaced: running, reserved, or both.",
        min_length=1,
        examples=[["running", "reserved"]],
    )
    allowed_regions: list[str] | None = optional_field(
        "The regions in which resources may be created.", min_length=1, examples=[["us-central-8"]]
    )
    allowed_gpu_types: list[str] | None = optional_field(
        "The GPU types that may be created (for scp: the declared gpu_type or server_type_id).",
        min_length=1,
        examples=[["H100_SXM", "H200_SXM"]],
    )
    max_hourly_cost: MaxCostInputs | None = optional_field(
        "The highest cost of an hour of the whole stack once the plan is applied. "
        "A plan that lowers the cost or only removes capacity passes; a plan that adds "
        "capacity with unknown costs does not pass.",
        examples=[{"amount": 120, "currency": "USD"}],
    )
    max_cost_increase: _Percentage | None = optional_field(
        "The most by which a plan may raise the hourly cost of the whole stack, in per cent of the "
        "cost before. A stack without costs before passes: limit it with max_hourly_cost.",
        examples=["10%"],
    )
    required_tags: list[str] | None = optional_field(
        "Tags that every resource which supports tags must have.", min_length=1, examples=[["team"]]
    )
    protected: list[str] | None = optional_field(
        "Names or URNs, with * for any text, of resources that must not be deleted or replaced.",
        min_length=1,
        examples=[["prod-*"]],
    )
    expiry_required: Annotated[bool, AfterValidator(_require_true)] | None = optional_field(
        "Created resources must end by themselves: expires, ttl, auto_terminate, "
        "duration_days, reservation_end_time, or a tag expires.",
        examples=[True],
    )
    not_busy: NotBusyInputs | None = optional_field(
        "No resource is removed, replaced or repaired while it is in use, as "
        "TensorOne or Lens reports, or while its use is unknown.",
        examples=[{"above": 0.05}],
    )
    no_open_ports: NoOpenPortsInputs | None = optional_field(
        "No resource may have unknown ports, or ports that are open to any address, "
        "as TensorOne's firewall rules show. The ports of a new cluster are "
        "known only with ssh_enabled: false, and without port_mappings and security_groups.",
        examples=[{"allowed": [443]}],
    )
    max_repaired_nodes: int | None = optional_field(
        "The most broken nodes that one plan may repair.", ge=0, examples=[1]
    )
    certified: Annotated[bool, AfterValidator(_require_true)] | None = optional_field(
        "Every resource with GPUs is certified: by a certification that has "
        "passed and is not stale, or that the plan creates or repeats; or by Together's own "
        "acceptance tests, if they are declared and all nodes have passed them.",
        examples=[True],
    )
    rehearsal: RehearsalLimitInputs | None = optional_field(
        "The plan was rehearsed (`preview --rehearse`), and no hazard costs more. "
        "Plans of an update only; a plan without changes passes.",
        examples=[{"max_lost_gpus": 0, "max_gpu_hours_without_work": 8, "jobs_ended": 0}],
    )
    python: _Function | None = optional_field(
        "A function of the project, MODULE:NAME, that gets the plan and yields a "
        "message for each problem.",
        examples=["policies:not_on_fridays"],
    )
    rego: str | None = optional_field(
        "A file, or a folder with files *.rego, in the project: the program opa "
        "evaluates the set `deny` of the package gpuform, with the plan as input.",
        min_length=1,
        examples=["policies"],
    )
    resources: list[str] | None = optional_field(
        "Names or URNs of the resources that the rule checks, with * for any text; "
        "all resources by default.",
        min_length=1,
        examples=[["train*"]],
    )
    level: Literal["mandatory", "advisory"] | None = optional_field(
        "mandatory blocks a plan, advisory only warns; mandatory if not declared.",
        examples=["advisory"],
    )
    reason: str | None = optional_field(
        "The reason of the gate, shown when it blocks a plan.",
        min_length=1,
        examples=["The budget of 2026: ask the owner of the project."],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem unless exactly one rule is declared.

        Also one for `resources` beside a rule about the complete plan.
        """
        declared_rules = [name for name in cls.rules if values.get(name) is not None]
        if not declared_rules:
            yield Problem("", f"has no rule: declare one of {', '.join(cls.rules)}")
        # one rule each: a permission lifts a gate as a whole
        for name in declared_rules[1:]:
            yield Problem(
                name, f"is a second rule beside {declared_rules[0]}: write it as another gate"
            )
        stack_rules = WHOLE_PLAN_RULES & {*declared_rules}
        if stack_rules and values.get("resources") is not None:
            yield Problem(
                "resources", f"conflicts with {min(stack_rules)}, which checks the whole plan"
            )


class WaiverInputs(InputModel):
    """A dated exception: until its last day, a gate does not stop a plan."""

    gate: str = Field(description="Name of the gate.", examples=["budget"])
    until: Annotated[str, AfterValidator(_validate_day)] = Field(
        description="The last day, in UTC; the gate stops plans again on the next day.",
        examples=["2026-12-31"],
    )
    reason: str = Field(min_length=1, description="Why.", examples=["two clusters during a move"])
    by: str = Field(min_length=1, description="Who grants it.", examples=["ana@example.com"])


class GatesInputs(InputModel):
    """The file of gates."""

    gates: dict[str, GateInputs] = Field(
        description="Each gate under its own name: small letters, digits and hyphens. --allow "
        "gate:NAME lifts the gate for one run.",
        examples=[{"few-at-a-time": {"max_destroyed_gpus": 8}}],
    )
    waive: list[WaiverInputs] | None = optional_field(
        "Waivers of gates, each with a last day; every review shows them.",
        examples=[
            [{"gate": "budget", "until": "2026-12-31", "reason": "a move", "by": "ana@example.com"}]
        ],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for each wrong gate name, each waiver of no gate, and each second waiver.

        Gate names have the characters a-z, 0-9 and hyphens.
        """
        gates = values.get("gates")
        names = tuple(gates) if isinstance(gates, Mapping) else ()
        yield from find_name_problems(names, "gates")
        waivers = values.get("waive")
        yield from find_waiver_problems(waivers if isinstance(waivers, list) else (), names)


def find_waiver_problems(waivers: Iterable[Any], names: tuple[str, ...]) -> Iterator[Problem]:
    """Yield a problem for each waiver of a gate missing in `names` or waived before."""
    waived: set[str] = set()
    for at, waiver in enumerate(waivers):
        name = waiver.get("gate") if isinstance(waiver, Mapping) else None
        if not isinstance(name, str):
            continue
        if name not in names:
            advice = suggest_name(name, names, "name a gate of this file")
            yield Problem(f"waive[{at}].gate", f"{name} is not a gate of this file: {advice}")
        elif name in waived:
            yield Problem(f"waive[{at}].gate", f"{name} has a waiver already: keep one of the two")
        waived.add(name)


def find_name_problems(names: Iterable[str], section: str) -> Iterator[Problem]:
    """Yield a problem for each name in a section with other characters than a-z, 0-9 and hyphens.

    Names are part of permissions (--allow gate:NAME), or of configuration keys (notify:NAME).
    """
    for name in names:
        if not _PLAIN_NAME.fullmatch(name):
            yield Problem(f"{section}.{name}", "is not a valid name: use a-z, 0-9 and hyphens")
