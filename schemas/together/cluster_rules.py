"""Check the rules over several fields of a Together cluster, and normalize driver versions.

Called by the cluster's inputs. A rule gets the declared values; a rule that needs an UNKNOWN value
reports nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TypeGuard

from gpuform.schemas.models import Problem
from gpuform.schemas.policies.lifetime import parse_duration, parse_expiry
from gpuform.schemas.policies.repair import find_no_capacity_problems, iterate_alternatives
from gpuform.schemas.together.drivers import is_same_version, parse_driver_version
from gpuform.schemas.together.outputs import is_before
from gpuform.schemas.values import UNKNOWN, to_unix_time

Values = Mapping[str, Any]


def find_cluster_problems(values: Values) -> Iterator[Problem]:
    """Yield the problems between a cluster's inputs, such as a region other than the volume's."""
    return chain(
        _find_driver_problems(values),
        _find_reservation_problems(values),
        _find_schedule_problems(values),
        _find_lifetime_conflicts(values),
        _find_volume_problems(values),
        _find_cluster_type_problems(values),
        _find_scaling_problems(values),
        _find_gpu_part_problems(values),
        _find_add_on_problems(values),
        _find_no_capacity_problems(values),
        _find_drain_problems(values),
        _find_rollout_problems(values),
    )


def expand_driver_version(values: dict[str, Any]) -> dict[str, Any]:
    """Return ``values`` with a pair of versions instead of ``driver_version``.

    Versions of the pair that are declared, too, stay as they are. An UNKNOWN version becomes a pair
    of UNKNOWN values.
    """
    if "driver_version" not in values:
        return values
    driver_version = values["driver_version"]
    cuda, driver = (
        (UNKNOWN, UNKNOWN) if driver_version is UNKNOWN else parse_driver_version(driver_version)
    )
    other_values = {name: value for name, value in values.items() if name != "driver_version"}
    return {"cuda_version": cuda, "nvidia_driver_version": driver} | other_values


def _is_known(value: Any) -> TypeGuard[Any]:
    """Return True if a value is declared and known."""
    return value is not None and value is not UNKNOWN


def _is_other(value: Any, expected: str) -> bool:
    """Return True if a value is undeclared or other than ``expected``; False if UNKNOWN."""
    return value is not UNKNOWN and value != expected


def _find_driver_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if driver and CUDA version are missing, incomplete or contradictory.

    `nvidia_version_id` may stand in place of both.
    """
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
    # declaring both spellings is fine as long as they agree
    elif _is_known(version):
        expected_pair = zip(
            ("cuda_version", "nvidia_driver_version"), parse_driver_version(version), strict=True
        )
        for name, value in expected_pair:
            if _is_known(values.get(name)) and not is_same_version(values[name], value):
                yield Problem(
                    name,
                    f"contradicts driver_version: {version} means {value}, not {values[name]}; "
                    "keep only one of the two",
                )


def _find_reservation_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if days or GPUs of a reservation and the billing type do not fit."""
    billing, days = values.get("billing_type"), values.get("duration_days")
    if billing == "RESERVED" and days is None:
        yield Problem(
            "duration_days", "is required with billing_type RESERVED: declare 1 to 90 days"
        )
    # the platform takes both for prepaid clusters only
    for name in ("duration_days", "num_reserved_gpus"):
        if _is_known(values.get(name)) and _is_other(billing, "RESERVED"):
            yield Problem(
                name,
                f"is valid only with billing_type RESERVED, not {billing}: "
                "remove it, or declare billing_type RESERVED",
            )


def _find_schedule_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if start or end of a reservation and the billing type do not fit.

    Also one if the end is not after the start.
    """
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
        if billing == "ON_DEMAND" and _is_known(time):
            yield Problem(
                name,
                "conflicts with billing_type ON_DEMAND, which ends when the cluster is deleted: "
                "remove it, or declare billing_type SCHEDULED_CAPACITY or RESERVED",
            )
    if _is_known(start) and _is_known(end) and not is_before(start, end):
        yield Problem("reservation_end_time", f"is not after reservation_start_time {start}")


def _find_lifetime_conflicts(values: Values) -> Iterator[Problem]:
    """Yield a problem if the cluster is declared to live longer than the reservation.

    An end in another form than a time has a problem of its own, and none here.
    """
    end, days = to_unix_time(_get_text(values, "reservation_end_time")), values.get("duration_days")
    start = to_unix_time(_get_text(values, "reservation_start_time"))
    expires, ttl = _get_text(values, "expires"), _get_text(values, "ttl")
    with suppress(ValueError):
        if expires and end is not None and parse_expiry(expires) > end:
            yield Problem(
                "expires",
                f"is after the reservation, which ends at {values['reservation_end_time']}: "
                "declare an earlier end, or a longer reservation",
            )
    length = end - start if start is not None and end is not None else None
    if length is None and isinstance(days, int | float):
        length = float(days) * _DAY_S
    with suppress(ValueError):
        if ttl and length is not None and parse_duration(ttl) > length:
            yield Problem(
                "ttl",
                f"is longer than the reservation of {length / _DAY_S:g} days: declare a shorter "
                "ttl, or a longer reservation",
            )


_DAY_S: Final = 86400.0


def _get_text(values: Values, name: str) -> str:
    """Return a declared text, or "" for another value."""
    value = values.get(name)
    return value if isinstance(value, str) else ""


def _find_volume_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem for two declared volumes, or an inline volume in another region.

    The region of a volume in `volume_id` is not known here.
    """
    inline_volume, region = values.get("shared_volume"), values.get("region")
    if inline_volume is not None and values.get("volume_id") is not None:
        yield Problem(
            "volume_id",
            "conflicts with shared_volume: keep volume_id to attach an existing volume, "
            "or shared_volume to create a new one",
        )
    volume_region = inline_volume.get("region") if isinstance(inline_volume, Mapping) else None
    # the platform mounts volumes only inside their region
    if _is_known(volume_region) and _is_known(region) and volume_region != region:
        yield Problem(
            "shared_volume.region",
            f"{volume_region} is not the cluster's region: a volume is used in its own region "
            f"only; declare {region}",
        )


def _find_cluster_type_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem for a missing slurm_shm_size_gib and each input of the other cluster type."""
    cluster_type = values.get("cluster_type")
    if cluster_type == "SLURM":
        # the platform requires the size for SLURM clusters
        if values.get("slurm_shm_size_gib") is None:
            yield Problem(
                "slurm_shm_size_gib",
                "is required with cluster_type SLURM: declare the shared memory in GiB",
            )
        if values.get("install_traefik") is True:
            yield Problem(
                "install_traefik", "is valid only with cluster_type KUBERNETES: remove it"
            )
    elif cluster_type is not UNKNOWN:
        config = values.get("cluster_config")
        scripts = config.get("slurm_startup_scripts") if isinstance(config, Mapping) else None
        slurm_only = {
            "slurm_image": values.get("slurm_image"),
            "slurm_shm_size_gib": values.get("slurm_shm_size_gib"),
            "cluster_config.slurm_startup_scripts": scripts,
        }
        for path, value in slurm_only.items():
            if _is_known(value):
                yield Problem(
                    path,
                    "is valid only with cluster_type SLURM: remove it, or declare cluster_type "
                    "SLURM",
                )


def _find_scaling_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if `auto_scale_max_gpus` has no `auto_scale` or is less than `num_gpus`."""
    max_gpus, gpus = values.get("auto_scale_max_gpus"), values.get("num_gpus")
    if not _is_known(max_gpus):
        return
    if values.get("auto_scale") in (None, False):
        yield Problem(
            "auto_scale_max_gpus", "is valid only with auto_scale: remove it, or declare it true"
        )
    if _is_known(gpus) and max_gpus < gpus:
        yield Problem(
            "auto_scale_max_gpus", f"{max_gpus} is less than num_gpus: declare at least {gpus}"
        )


def _find_gpu_part_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if pool or reserved GPUs exceed `num_gpus`, or the pool's id is missing."""
    gpus = values.get("num_gpus")
    for name in ("num_capacity_pool_gpus", "num_reserved_gpus"):
        # both are parts of num_gpus, unlike preemptible GPUs
        part = values.get(name)
        if _is_known(part) and _is_known(gpus) and part > gpus:
            yield Problem(name, f"{part} is more than num_gpus: declare at most {gpus}")
    if _is_known(values.get("num_capacity_pool_gpus")) and values.get("capacity_pool_id") is None:
        yield Problem(
            "capacity_pool_id", "is required with num_capacity_pool_gpus: declare the pool's id"
        )


def _find_add_on_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem for each add-on whose name an earlier add-on has, too."""
    add_ons = values.get("add_ons")
    if not isinstance(add_ons, Sequence):
        return
    known_names = set()
    for index, add_on in enumerate(add_ons):
        name = add_on.get("name") if isinstance(add_on, Mapping) else None
        if isinstance(name, str):
            if name in known_names:
                yield Problem(
                    f"add_ons[{index}].name",
                    f"{name} is listed twice: give each add-on its own name",
                )
            known_names.add(name)


def _find_no_capacity_problems(values: Values) -> Iterator[Problem]:
    """Yield the problems of `on_no_capacity`, also between other regions and the other inputs."""
    yield from find_no_capacity_problems(values)
    # an alternative region must fit the other inputs as well
    for path, alternative in iterate_alternatives(values):
        yield from _find_other_region_problems(path, alternative, values)


def _find_other_region_problems(
    path: str, alternative: Values, values: Values
) -> Iterator[Problem]:
    """Yield a problem if an alternative's other region does not fit the cluster's inputs.

    A shared volume and an nvidia_version_id belong to one region. `path` is the alternative's.
    """
    region = alternative.get("region")
    if not _is_known(region) or region == values.get("region"):
        return
    # a shared volume can be mounted in its own region only
    regional_inputs = [
        name for name in ("volume_id", "shared_volume") if values.get(name) is not None
    ]
    if regional_inputs:
        yield Problem(
            f"{path}.region",
            f"conflicts with {regional_inputs[0]}: a shared volume is used in its own region "
            "only; try other types of GPU there, or wait",
        )
    if values.get("nvidia_version_id") is not None:
        yield Problem(
            f"{path}.region",
            "conflicts with nvidia_version_id, which is an id of one region: declare "
            "driver_version instead",
        )


def _find_drain_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if `drain.slurm` is declared for a cluster without Slurm."""
    declared = values.get("drain")
    if not isinstance(declared, Mapping) or declared.get("slurm") is None:
        return
    if _is_other(values.get("cluster_type"), "SLURM"):
        yield Problem("drain.slurm", "is valid only with cluster_type SLURM: remove it")


def _find_rollout_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem if a rollout is to keep the volume, and no `volume_id` is declared."""
    rollout = values.get("rollout")
    # an inline volume belongs to its cluster, so a new cluster cannot mount it
    keeps_volume = isinstance(rollout, Mapping) and rollout.get("keep_volume") is True
    if not keeps_volume or values.get("volume_id") is not None:
        return
    reason = "needs volume_id, the volume that the new cluster mounts as well"
    if values.get("shared_volume") is not None:
        reason += (
            ": a shared_volume is created again with each cluster, so declare it as a SharedVolume"
        )
    yield Problem("rollout.keep_volume", reason)
