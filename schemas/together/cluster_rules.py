"""The rules over several fields of a Together cluster, and its one spelling of driver versions.

Each rule gets what is declared; UNKNOWN is a value not known yet, and a rule that needs it says
nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeGuard

from gpuform.schemas.models import Problem
from gpuform.schemas.policies.repair import alternatives_of, no_capacity_problems
from gpuform.schemas.together.drivers import driver_pair, is_same_version
from gpuform.schemas.together.statuses import is_before
from gpuform.schemas.values import UNKNOWN

Values = Mapping[str, Any]


def cluster_problems(values: Values) -> Iterator[Problem]:
    return chain(
        _drivers(values),
        _reservation(values),
        _schedule(values),
        _volume(values),
        _slurm(values),
        _scaling(values),
        _parts_of_gpus(values),
        _add_ons(values),
        _no_capacity(values),
        _drain(values),
        _rollout(values),
    )


def in_one_spelling(values: dict[str, Any]) -> dict[str, Any]:
    """``driver_version`` becomes the pair, unknown as long as it is."""
    if "driver_version" not in values:
        return values
    version = values["driver_version"]
    cuda, driver = (UNKNOWN, UNKNOWN) if version is UNKNOWN else driver_pair(version)
    rest = {name: value for name, value in values.items() if name != "driver_version"}
    return {"cuda_version": cuda, "nvidia_driver_version": driver} | rest


def _given(value: Any) -> TypeGuard[Any]:
    """Whether a value is declared and known."""
    return value is not None and value is not UNKNOWN


def _differs(value: Any, wanted: str) -> bool:
    """Whether a field is known to be something else, or not declared."""
    return value is not UNKNOWN and value != wanted


def _drivers(values: Values) -> Iterator[Problem]:
    version = values.get("driver_version")
    cuda, driver = values.get("cuda_version"), values.get("nvidia_driver_version")
    if version is None and cuda is None and driver is None:
        if values.get("nvidia_version_id") is None:
            yield Problem(
                "driver_version",
                "is required: declare driver_version, such as CUDA_12_6_560, or cuda_version and "
                "nvidia_driver_version, or nvidia_version_id",
            )
    elif version is None and driver is None:
        yield Problem("nvidia_driver_version", "is required with cuda_version: declare both")
    elif version is None and cuda is None:
        yield Problem("cuda_version", "is required with nvidia_driver_version: declare both")
    elif _given(version):
        wanted = zip(("cuda_version", "nvidia_driver_version"), driver_pair(version), strict=True)
        for name, value in wanted:
            if _given(values.get(name)) and not is_same_version(values[name], value):
                yield Problem(
                    name,
                    f"contradicts driver_version: {version} means {value}, not {values[name]}; "
                    "keep only one of the two",
                )


def _reservation(values: Values) -> Iterator[Problem]:
    billing, days = values.get("billing_type"), values.get("duration_days")
    if billing == "RESERVED" and days is None:
        yield Problem(
            "duration_days", "is required with billing_type RESERVED: declare 1 to 90 days"
        )
    for name in ("duration_days", "num_reserved_gpus"):
        if _given(values.get(name)) and _differs(billing, "RESERVED"):
            yield Problem(
                name,
                f"goes with billing_type RESERVED only, not {billing}: "
                "remove it, or declare billing_type RESERVED",
            )


def _schedule(values: Values) -> Iterator[Problem]:
    billing = values.get("billing_type")
    start, end = values.get("reservation_start_time"), values.get("reservation_end_time")
    times = {"reservation_start_time": start, "reservation_end_time": end}
    for name, time in times.items():
        if billing == "SCHEDULED_CAPACITY" and time is None:
            yield Problem(
                name,
                "is required with billing_type SCHEDULED_CAPACITY: "
                "declare a moment, such as 2026-03-01T08:00:00Z",
            )
        if billing == "ON_DEMAND" and _given(time):
            yield Problem(
                name,
                "does not go with billing_type ON_DEMAND, which ends when the cluster is deleted: "
                "remove it, or declare billing_type SCHEDULED_CAPACITY or RESERVED",
            )
    if _given(start) and _given(end) and not is_before(start, end):
        yield Problem("reservation_end_time", f"is not after reservation_start_time {start}")


def _volume(values: Values) -> Iterator[Problem]:
    inline, region = values.get("shared_volume"), values.get("region")
    if inline is not None and values.get("volume_id") is not None:
        yield Problem(
            "volume_id",
            "does not go with shared_volume: keep volume_id to attach an existing volume, "
            "or shared_volume to make a new one",
        )
    place = inline.get("region") if isinstance(inline, Mapping) else None
    if _given(place) and _given(region) and place != region:
        yield Problem(
            "shared_volume.region",
            f"{place} is not the cluster's region: a volume is used in its own region only; "
            f"declare {region}",
        )


def _slurm(values: Values) -> Iterator[Problem]:
    kind = values.get("cluster_type")
    if kind == "SLURM":
        if values.get("slurm_shm_size_gib") is None:
            yield Problem(
                "slurm_shm_size_gib",
                "is required with cluster_type SLURM: declare the shared memory in GiB",
            )
        if values.get("install_traefik") is True:
            yield Problem("install_traefik", "goes with cluster_type KUBERNETES only: remove it")
    elif kind is not UNKNOWN:
        config = values.get("cluster_config")
        scripts = config.get("slurm_startup_scripts") if isinstance(config, Mapping) else None
        slurm_only = {
            "slurm_image": values.get("slurm_image"),
            "slurm_shm_size_gib": values.get("slurm_shm_size_gib"),
            "cluster_config.slurm_startup_scripts": scripts,
        }
        for path, value in slurm_only.items():
            if _given(value):
                yield Problem(
                    path,
                    "goes with cluster_type SLURM only: remove it, or declare cluster_type SLURM",
                )


def _scaling(values: Values) -> Iterator[Problem]:
    most, gpus = values.get("auto_scale_max_gpus"), values.get("num_gpus")
    if not _given(most):
        return
    if values.get("auto_scale") in (None, False):
        yield Problem(
            "auto_scale_max_gpus", "goes with auto_scale only: remove it, or declare it true"
        )
    if _given(gpus) and most < gpus:
        yield Problem(
            "auto_scale_max_gpus", f"{most} is less than num_gpus: declare at least {gpus}"
        )


def _parts_of_gpus(values: Values) -> Iterator[Problem]:
    gpus = values.get("num_gpus")
    for name in ("num_capacity_pool_gpus", "num_reserved_gpus"):
        part = values.get(name)
        if _given(part) and _given(gpus) and part > gpus:
            yield Problem(name, f"{part} is more than num_gpus: declare at most {gpus}")
    if _given(values.get("num_capacity_pool_gpus")) and values.get("capacity_pool_id") is None:
        yield Problem(
            "capacity_pool_id", "is required with num_capacity_pool_gpus: declare the pool's id"
        )


def _add_ons(values: Values) -> Iterator[Problem]:
    add_ons = values.get("add_ons")
    if not isinstance(add_ons, Sequence):
        return
    seen = set()
    for at, add_on in enumerate(add_ons):
        name = add_on.get("name") if isinstance(add_on, Mapping) else None
        if isinstance(name, str):
            if name in seen:
                yield Problem(
                    f"add_ons[{at}].name", f"{name} is there twice: give each add-on its own name"
                )
            seen.add(name)


def _no_capacity(values: Values) -> Iterator[Problem]:
    yield from no_capacity_problems(values, "another region, another gpu_type, or both")
    for place, alternative in alternatives_of(values):
        yield from _elsewhere(place, alternative, values)


def _elsewhere(place: str, alternative: Values, values: Values) -> Iterator[Problem]:
    region = alternative.get("region")
    if not _given(region) or region == values.get("region"):
        return
    bound = [name for name in ("volume_id", "shared_volume") if values.get(name) is not None]
    if bound:
        yield Problem(
            f"{place}.region",
            f"does not go with {bound[0]}: a shared volume is used in its own region only; try "
            "other types of GPU there, or wait",
        )
    if values.get("nvidia_version_id") is not None:
        yield Problem(
            f"{place}.region",
            "does not go with nvidia_version_id, which is an id of one region: declare "
            "driver_version instead",
        )


def _drain(values: Values) -> Iterator[Problem]:
    declared = values.get("drain")
    if not isinstance(declared, Mapping) or declared.get("slurm") is None:
        return
    if _differs(values.get("cluster_type"), "SLURM"):
        yield Problem("drain.slurm", "goes with cluster_type SLURM only: remove it")


def _rollout(values: Values) -> Iterator[Problem]:
    rollout = values.get("rollout")
    keeps = isinstance(rollout, Mapping) and rollout.get("keep_volume") is True
    if not keeps or values.get("volume_id") is not None:
        return
    reason = "needs volume_id, the volume that the new cluster mounts as well"
    if values.get("shared_volume") is not None:
        reason += (
            ": a shared_volume is made anew with each cluster, so declare it as a SharedVolume"
        )
    yield Problem("rollout.keep_volume", reason)
