"""Check rules over several resources of a topology, and find the lifecycle of a resource type.

A rule looks at one registration with those before it, while planning; the values that are not known
yet are the platform's to check.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from gpuform.providers.catalog import has_kind, load_lifecycle_class
from gpuform.providers.errors import GpuformError
from gpuform.providers.forms import Form
from gpuform.providers.operations import Settings
from gpuform.schemas.models import Problem
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.registration import DeletionRule, Registration, RegistrationIndex, Rule
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import get_own_type, name_of
from gpuform.stacks.engine.values import unwrap_secrets

if TYPE_CHECKING:
    from gpuform.providers.lifecycle import Lifecycle


def kind_of(type_: str) -> tuple[str, str] | None:
    """Platform and kind of a gpuform resource's type, in either form; None for any other type."""
    platform, _, kind = get_own_type(type_).partition(":")
    return (platform, kind) if has_kind(platform, kind) else None


def is_secret_property(type_: str, name: str) -> bool:
    """Whether a property of a gpuform resource is secret by its model, whatever it is made of."""
    kind = kind_of(type_)
    return kind is not None and name in load_lifecycle_class(*kind).list_secret_names()


def lifecycle_of(type_: str) -> "type[Lifecycle[Any, Any]] | None":
    """The lifecycle of a gpuform resource's type, imported now; None for any other type."""
    kind = kind_of(type_)
    return load_lifecycle_class(*kind) if kind else None


def write_refusal(lifecycle: "type[Lifecycle[Any, Any]]", settings: Settings) -> str | None:
    """Why the key may not change objects of this kind; empty when it may.

    None when nobody can tell beforehand, or the platform does not answer: then it refuses the
    change itself.
    """
    try:
        return lifecycle.find_write_refusal(settings)
    except GpuformError:
        return None


def _types(platform: str, kind: str) -> tuple[str, ...]:
    """The types of a kind's resources, in either form."""
    return tuple(form.build_type(platform, kind) for form in Form)


_CLUSTER, _VOLUME = _types("together", "Cluster"), _types("together", "SharedVolume")
_RECORD, _RECORD_NODE = _types("aios", "Cluster"), _types("aios", "GpuNode")


def volume_in_region(cluster: Registration, others: RegistrationIndex) -> Iterator[Problem]:
    """A Together cluster can only use a shared volume of its own region."""
    if cluster.type not in _CLUSTER:
        return
    urns = (cluster.property_dependencies or {}).get("volume_id", ())
    for volume in filter(None, map(others.get, urns)):
        theirs, ours = volume.inputs.get("region"), cluster.inputs.get("region")
        if volume.type not in _VOLUME or not isinstance(theirs, str) or not isinstance(ours, str):
            continue
        if theirs != ours:
            yield Problem(
                "volume_id",
                f"shared volume '{volume.name}' is in {theirs}, the cluster in {ours}; a cluster "
                f"can only use a volume of its own region: declare both in one region, or a volume "
                f"of its own for {ours}",
            )


def volume_in_use(volume: ResourceState, staying: Sequence[ResourceState]) -> Iterator[EngineError]:
    """A Together volume goes only with the clusters that mount it: until then it is in use."""
    if volume.type not in _VOLUME or not volume.id:
        return
    for cluster in staying:
        mounted = cluster.outputs.get("volume_id", cluster.inputs.get("volume_id"))
        if cluster.type in _CLUSTER and unwrap_secrets(mounted) == volume.id:
            yield EngineError(
                f"shared volume '{name_of(volume.urn)}' ({volume.id}) cannot be deleted or "
                f"replaced: cluster '{name_of(cluster.urn)}' mounts it, and stays",
                hint="keep the volume as it is, or delete the cluster before it or in the same run",
            )


def one_owner_of_nodes(resource: Registration, others: RegistrationIndex) -> Iterator[Problem]:
    """A node of an AIOS record is its cluster's or an aios.GpuNode's, and of one of these only."""
    if resource.type in _RECORD and _declares_nodes(resource):
        # One that names it as the resource comes after it.
        for node in _with_texts(others, _RECORD_NODE, resource, "cluster_id"):
            yield Problem("nodes.node_data", _two_owners(node, resource))
    elif resource.type in _RECORD_NODE:
        for cluster in filter(_declares_nodes, _clusters_of(resource, others)):
            yield Problem("cluster_id", _two_owners(resource, cluster))
        for node in _with_texts(others, (resource.type,), resource, "cluster_id", "node_id"):
            if node.urn != resource.urn:
                yield Problem("node_id", f"is declared by '{node.name}', too: keep one of the two")


def _with_texts(
    others: RegistrationIndex, types: Iterable[str], like: Registration, *names: str
) -> Iterator[Registration]:
    """Yield the registrations of these types with the same known texts, in the same registry.

    Another provider may be for another registry, which may have the same ids.
    """
    texts = {name: like.inputs.get(name) for name in names}
    found = chain.from_iterable(others.find_with_inputs(each, texts) for each in types)
    return (each for each in found if each.provider == like.provider)


def _clusters_of(node: Registration, others: RegistrationIndex) -> Iterable[Registration]:
    """The records that a node names, by their id or as the resource."""
    urns = (node.property_dependencies or {}).get("cluster_id", ())
    named = (each for each in map(others.get, urns) if each and each.type in _RECORD)
    found = (*named, *_with_texts(others, _RECORD, node, "cluster_id"))
    return {each.urn: each for each in found}.values()


def _declares_nodes(cluster: Registration) -> bool:
    """Also with an empty list: then it has none."""
    nodes = unwrap_secrets(cluster.inputs.get("nodes"))
    return isinstance(nodes, dict) and nodes.get("node_data") is not None


def _two_owners(node: Registration, cluster: Registration) -> str:
    return (
        f"cluster '{cluster.name}' declares its nodes itself, and '{node.name}' is one of its "
        "nodes, too: declare all of them in nodes.node_data, or all as aios.GpuNode resources and "
        "leave nodes out"
    )


DELETION_RULES: tuple[DeletionRule, ...] = (volume_in_use,)
"""Every rule over what is deleted and what stays."""

RULES: tuple[Rule, ...] = (volume_in_region, one_owner_of_nodes)
"""Every rule over several resources."""


def deletes_first(type_: str, inputs: Mapping[str, Any]) -> bool:
    """Whether a new object of this type takes the name or the capacity of the old one."""
    lifecycle = lifecycle_of(type_)
    return lifecycle is not None and not lifecycle.should_create_first(inputs)
