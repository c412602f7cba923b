"""What Together's clusters and volumes take up, and how they are billed.

From the Together reference, 'Billing': on demand by the hour, RESERVED prepaid for its days,
preemptible GPUs beside those that num_gpus counts.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.providers.declared import not_known, number_of, placed, text_of
from gpuform.schemas.footprint import Billing, Expense, Footprint
from gpuform.schemas.lifetime import has_end
from gpuform.schemas.together.statuses import ClusterStatus
from gpuform.schemas.values import UNKNOWN

_BILLING: Final = {
    "RESERVED": Billing.RESERVED,
    "SCHEDULED_CAPACITY": Billing.SCHEDULED,
}
_RUNNING: Final = (ClusterStatus.READY, ClusterStatus.DEGRADED)


def cluster_footprint(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Footprint:
    """Where a search for capacity may place it elsewhere, what was seen is true."""
    place = {**values, **placed(seen)}
    region, gpu_type = text_of(place, "region"), text_of(place, "gpu_type")
    billing_type = text_of(values, "billing_type")
    reserved = any(values.get(name) for name in ("duration_days", "reservation_end_time"))
    return Footprint(
        region=region,
        gpu_types=(gpu_type,) if gpu_type else (),
        expires=has_end(values) or (reserved and billing_type != "ON_DEMAND"),
        running=text_of(seen, "status") in _RUNNING,
        reserved=billing_type == "RESERVED",
        paid_until=text_of({**values, **seen}, "reserved_until", "reservation_end_time"),
        unknown=not_known(place, region="region", gpu_types="gpu_type", expires="duration_days"),
        expenses=tuple(_expenses(values, seen, region, gpu_type)),
    )


def volume_footprint(values: Mapping[str, Any]) -> Footprint:
    region = text_of(values, "region")
    return Footprint(
        region=region,
        unknown=not_known(values, region="region"),
        expenses=(_storage(values, region),),
    )


def _expenses(
    values: Mapping[str, Any], seen: Mapping[str, Any], region: str, gpu_type: str
) -> Iterator[Expense]:
    for billing, amount in _counts(values, seen):
        if amount != 0:
            yield Expense(
                what="gpus",
                amount=amount,
                platform="together",
                gpu_type=gpu_type,
                region=region,
                billing=billing,
            )
    volume = values.get("shared_volume")
    if isinstance(volume, Mapping):
        outlives = volume.get("is_lifecycle_independent") is True
        storage = _storage(volume, text_of(volume, "region"))
        yield storage.model_copy(update={"outlives": outlives})
    if values.get("auto_scale") is True:
        most, now = number_of(values, "auto_scale_max_gpus"), number_of(values, "num_gpus")
        more = None if most is None or now is None else max(0, most - now)
        yield Expense(
            what="gpus",
            amount=more or None,
            platform="together",
            gpu_type=gpu_type,
            region=region,
            because="automatic scaling decides how many of them there are",
        )


def _counts(
    values: Mapping[str, Any], seen: Mapping[str, Any]
) -> Iterator[tuple[Billing, float | None]]:
    """How many GPUs are paid for in which way."""
    total, pooled = number_of(values, "num_gpus"), number_of(values, "num_capacity_pool_gpus")
    declared = values.get("billing_type")
    billing = _BILLING.get(str(declared), Billing.ON_DEMAND)
    if declared is UNKNOWN:
        total = None
    own = None if total is None or pooled is None else max(0, total - pooled)
    yield Billing.CAPACITY_POOL, pooled
    if billing is Billing.RESERVED and values.get("num_reserved_gpus") is not None:
        reserved = number_of(values, "num_reserved_gpus")
        yield Billing.RESERVED, reserved
        rest = None if own is None or reserved is None else max(0, own - reserved)
        yield Billing.ON_DEMAND, rest
    else:
        yield billing, own
    wanted = number_of(values, "num_preemptible_gpus")
    there = number_of(seen, "allocated_preemptible_gpus")
    # What is wanted is paid for once it is there, which may be at any time.
    yield Billing.PREEMPTIBLE, None if wanted is None else max(wanted, there or 0)


def _storage(values: Mapping[str, Any], region: str) -> Expense:
    return Expense(
        what="storage",
        amount=number_of(values, "size_tib"),
        unit="TiB",
        platform="together",
        region=region,
    )
