"""What a TensorOne cluster takes up. The platform tells its hourly rate itself (`cost` in 'Get
Cluster Details'), which holds as long as neither the configuration nor the state changes.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuform.providers.declared import EXPIRES, names_in, not_known, number_of, placed, text_of
from gpuform.schemas.footprint import Billing, Expense, Footprint
from gpuform.schemas.lifetime import has_end
from gpuform.schemas.values import UNKNOWN, same

_PRICED: Final = (
    *("region", "gpu_type", "gpu_count", "storage_gb", "cpu_cores", "memory_gb", "state"),
)
"""What a rate is for."""

_LIMITS: Final = ("idle_minutes", "max_runtime_hours", "cost_limit_usd")


def cluster_footprint(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Footprint:
    """Where a search for capacity may place it elsewhere, what was seen is true."""
    values, seen = {**values, **placed(seen)}, {**seen, **placed(seen)}
    region, gpu_type = text_of(values, "region"), text_of(values, "gpu_type")
    tags = names_in(values, "tags")
    runs = text_of(seen, "status") == "running"
    return Footprint(
        region=region,
        gpu_types=(gpu_type,) if gpu_type else (),
        tags=tags,
        expires=has_end(values) or EXPIRES in tags or _ends(values.get("auto_terminate")),
        running=runs,
        unknown=not_known(
            values, region="region", gpu_types="gpu_type", tags="tags", expires="auto_terminate"
        ),
        expenses=_expenses(values, seen, region, gpu_type),
    )


def _expenses(
    values: Mapping[str, Any], seen: Mapping[str, Any], region: str, gpu_type: str
) -> tuple[Expense, ...]:
    place = {"platform": "tensorone", "region": region}
    rate = seen.get("current_hourly_rate")
    if isinstance(rate, int | float) and _is_as_seen(values, seen):
        is_stopped = text_of(seen, "status") == "stopped"
        billing = Billing.STOPPED if is_stopped else Billing.ON_DEMAND
        count, size = number_of(seen, "gpu_count"), number_of(seen, "storage_gb")
        told = {**place, "currency": text_of(seen, "currency"), "source": "tensorone"}
        whole = {"hourly": float(rate), "gpu_type": gpu_type, "billing": billing}
        return (
            Expense(what="whole", amount=count, **whole, **told),
            Expense(what="storage", amount=size, unit="GB", hourly=0.0, **told),  # in that price
        )
    is_stopped = text_of(values, "state") == "stopped"
    billing = Billing.STOPPED if is_stopped else Billing.ON_DEMAND
    count, size = number_of(values, "gpu_count"), number_of(values, "storage_gb")
    return (
        Expense(what="gpus", amount=count, gpu_type=gpu_type, billing=billing, **place),
        Expense(what="storage", amount=size, unit="GB", **place),
    )


def _is_as_seen(values: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether all that is priced is declared as it is."""
    declared = (name for name in _PRICED if values.get(name) is not None)
    return all(same(values[name], seen.get(name)) for name in declared)


def _ends(limits: Any) -> bool:
    if not isinstance(limits, Mapping) or limits is UNKNOWN:
        return False
    return limits.get("enabled") is not False and any(limits.get(name) for name in _LIMITS)
