"""Check rules over several resources of a topology, and find the lifecycle of a resource type.

The engine checks each registration with the earlier ones while it plans; values that are not known
yet are left to the platform.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from gpuform.providers.catalog import has_kind, load_lifecycle_class
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifetime import format_moment
from gpuform.providers.operations import Settings
from gpuform.providers.platform import Form
from gpuform.providers.values import unwrap_secrets
from gpuform.schemas.errors import EngineError
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.lifetime import parse_expiry
from gpuform.schemas.values import to_unix_time
from gpuform.stacks.engine.digests import DeletionRule, RegistrationIndex, Rule
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import get_own_type, name_of

if TYPE_CHECKING:
    from gpuform.providers.lifecycle import Lifecycle


def find_kind(type_: str) -> tuple[str, str] | None:
    """Return platform and kind of a gpuform resource's type, or None for another type.

    The type may be of either form.
    """
    platform, _, kind = get_own_type(type_).partition(":")
    return (platform, kind) if has_kind(platform, kind) else None


def is_secret_property(type_: str, name: str) -> bool:
    """Return whether the model of a gpuform resource marks a property as secret."""
    kind = find_kind(type_)
    return kind is not None and name in load_lifecycle_class(*kind).list_secret_names()


def find_lifecycle(type_: str) -> "type[Lifecycle[Any, Any]] | None":
    """Return the lifecycle class of a gpuform resource's type, or None for another type.

    The class is imported at the call.
    """
    kind = find_kind(type_)
    return load_lifecycle_class(*kind) if kind else None


def find_write_refusal(lifecycle: "type[Lifecycle[Any, Any]]", settings: Settings) -> str | None:
    """Return why the API key may not change objects of this kind; empty if the key may.

    None means unknown: the platform has no way to ask, or does not answer. The platform then
    refuses the change itself.
    """
    try:
        return lifecycle.hooks.find_write_refusal(settings)
    except GpuformError:
        return None


def _list_types(platform: str, kind: str) -> tuple[str, ...]:
    """Return the types of a kind's resources, in either form."""
    return tuple(form.build_type(platform, kind) for form in Form)


_CLUSTER, _VOLUME = _list_types("together", "Cluster"), _list_types("together", "SharedVolume")
_RECORD, _RECORD_NODE = _list_types("aios", "Cluster"), _list_types("aios", "GpuNode")


def check_volume_region(cluster: Registration, others: RegistrationIndex) -> Iterator[Problem]:
    """Yield a problem if a Together cluster uses a shared volume of another region.

    Only a volume that the program declares is checked, if both regions are known texts.
    """
    if cluster.type not in _CLUSTER:
        return
    # A volume that is given by a literal id has no declaration in this program.
    urns = (cluster.property_dependencies or {}).get("volume_id", ())
    for volume in filter(None, map(others.get, urns)):
        volume_region, cluster_region = volume.inputs.get("region"), cluster.inputs.get("region")
        if (
            volume.type not in _VOLUME
            or not isinstance(volume_region, str)
            or not isinstance(cluster_region, str)
        ):
            continue
        if volume_region != cluster_region:
            yield Problem(
                "volume_id",
                f"shared volume '{volume.name}' is in {volume_region}, the cluster in "
                f"{cluster_region}; a cluster can only use a volume of its own region: declare "
                f"both in one region, or another volume in {cluster_region}",
            )


def check_volume_use(
    volume: ResourceState, remaining: Sequence[ResourceState]
) -> Iterator[EngineError]:
    """Yield an error for each remaining cluster with a mounted Together volume to delete."""
    if volume.type not in _VOLUME or not volume.id:
        return
    for cluster in remaining:
        mounted_id = cluster.outputs.get("volume_id", cluster.inputs.get("volume_id"))
        if cluster.type in _CLUSTER and unwrap_secrets(mounted_id) == volume.id:
            yield EngineError(
                f"shared volume '{name_of(volume.urn)}' ({volume.id}) cannot be deleted or "
                f"replaced: cluster '{name_of(cluster.urn)}' mounts it and is not deleted",
                hint="keep the volume unchanged, or delete the cluster first or in the same run",
            )


def check_node_owners(resource: Registration, others: RegistrationIndex) -> Iterator[Problem]:
    """Yield problems of AIOS nodes declared by a cluster and a GpuNode, or by two GpuNodes.

    A cluster that declares `node_data` excludes every GpuNode of that cluster, even of another
    node.
    """
    if resource.type in _RECORD and _declares_nodes(resource):
        # A node with a reference to the cluster is registered later, so only ids are compared.
        for node in _find_with_equal_inputs(others, _RECORD_NODE, resource, "cluster_id"):
            yield Problem("nodes.node_data", _describe_two_owners(node, resource))
    # The engine checks each registration with the earlier ones, so both orders are possible.
    elif resource.type in _RECORD_NODE:
        for cluster in filter(_declares_nodes, _find_clusters(resource, others)):
            yield Problem("cluster_id", _describe_two_owners(resource, cluster))
        for node in _find_with_equal_inputs(
            others, (resource.type,), resource, "cluster_id", "node_id"
        ):
            if node.urn != resource.urn:
                yield Problem("node_id", f"is also declared by '{node.name}': keep one of the two")


def _find_with_equal_inputs(
    others: RegistrationIndex, types: Iterable[str], registration: Registration, *names: str
) -> Iterator[Registration]:
    """Yield the registrations of given types with equal known texts, in one registry.

    Another provider may use another registry, which may have the same ids.
    """
    inputs = {name: registration.inputs.get(name) for name in names}
    registrations = chain.from_iterable(others.find_with_inputs(type_, inputs) for type_ in types)
    return (other for other in registrations if other.provider == registration.provider)


def _find_clusters(node: Registration, others: RegistrationIndex) -> Iterable[Registration]:
    """Return the cluster records to which a node belongs, by id or by reference."""
    urns = (node.property_dependencies or {}).get("cluster_id", ())
    referenced = (
        cluster for cluster in map(others.get, urns) if cluster and cluster.type in _RECORD
    )
    clusters = (*referenced, *_find_with_equal_inputs(others, _RECORD, node, "cluster_id"))
    return {cluster.urn: cluster for cluster in clusters}.values()


def _declares_nodes(cluster: Registration) -> bool:
    """Return whether the cluster itself declares nodes; an empty list declares none."""
    nodes = unwrap_secrets(cluster.inputs.get("nodes"))
    return isinstance(nodes, dict) and nodes.get("node_data") is not None


def _describe_two_owners(node: Registration, cluster: Registration) -> str:
    """Return the message for a node declared by both a cluster and a separate resource."""
    return (
        f"cluster '{cluster.name}' declares its nodes itself, and '{node.name}' declares one of "
        "them again: declare all nodes in nodes.node_data, or all as aios.GpuNode resources and "
        "omit nodes"
    )


def check_reservations(resource: Registration, others: RegistrationIndex) -> Iterator[Problem]:
    """Yield problems of a resource which outlives a cluster, and of two claims on one pool.

    A claim is a Together cluster with a capacity pool and a declared start and end. Two claims on
    one pool must not overlap. `expires` of a resource must not be after the end of the reservation
    of a cluster that the resource refers to.
    """
    yield from _find_outlived_reservations(resource, others)
    window = _read_window(resource)
    if resource.type not in _CLUSTER or window is None:
        return
    for other in _find_with_equal_inputs(others, _CLUSTER, resource, "capacity_pool_id"):
        other_window = _read_window(other)
        if other.urn == resource.urn or other_window is None:
            continue
        if window[0] < other_window[1] and other_window[0] < window[1]:
            yield Problem(
                "capacity_pool_id",
                f"'{other.name}' claims the same capacity pool from "
                f"{format_moment(other_window[0])} until {format_moment(other_window[1])}: "
                "declare other times, or another pool",
            )


def _find_outlived_reservations(
    resource: Registration, others: RegistrationIndex
) -> Iterator[Problem]:
    """Yield a problem for each reserved cluster with an end before a dependent resource's end."""
    expires = resource.inputs.get("expires")
    dependencies = (resource.property_dependencies or {}).values()
    for cluster in map(others.get, dict.fromkeys(chain.from_iterable(dependencies))):
        if cluster is None or cluster.type not in _CLUSTER or not isinstance(expires, str):
            continue
        end = cluster.inputs.get("reservation_end_time")
        moment = to_unix_time(end)
        if moment is not None and parse_expiry(expires) > moment:
            yield Problem(
                "expires",
                f"is after the reservation of cluster '{cluster.name}', which ends at "
                f"{format_moment(moment)}: "
                "declare an earlier end, or a longer reservation",
            )


def _read_window(cluster: Registration) -> tuple[float, float] | None:
    """Return the declared start and end of a reservation, or None without both."""
    start = to_unix_time(cluster.inputs.get("reservation_start_time"))
    end = to_unix_time(cluster.inputs.get("reservation_end_time"))
    return None if start is None or end is None else (start, end)


DELETION_RULES: tuple[DeletionRule, ...] = (check_volume_use,)
"""All rules about deleted and remaining resources."""

RULES: tuple[Rule, ...] = (check_volume_region, check_node_owners, check_reservations)
"""All rules about several resources."""


def should_delete_first(type_: str, inputs: Mapping[str, Any]) -> bool:
    """Return whether a new object of this type takes the name or the capacity of the old one."""
    lifecycle = find_lifecycle(type_)
    return lifecycle is not None and not lifecycle.hooks.should_create_first(inputs)
