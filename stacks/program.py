"""What holds over several resources of a topology, whatever declares them.

A rule looks at one registration with those that it depends on, while planning; the values that are
not known yet are the platform's to check.
"""

from collections.abc import Iterator, Mapping

from gpuform.schemas.models import Problem
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.rules import Rule

_CLUSTER = "pulumi-python:dynamic/gpuform.together:Cluster"
_VOLUME = "pulumi-python:dynamic/gpuform.together:SharedVolume"


def volume_in_region(
    cluster: Registration, others: Mapping[str, Registration]
) -> Iterator[Problem]:
    """A Together cluster can only use a shared volume of its own region."""
    if cluster.type != _CLUSTER:
        return
    urns = (cluster.property_dependencies or {}).get("volume_id", ())
    for volume in (others[urn] for urn in urns if urn in others):
        theirs, ours = volume.inputs.get("region"), cluster.inputs.get("region")
        if volume.type != _VOLUME or not isinstance(theirs, str) or not isinstance(ours, str):
            continue
        if theirs != ours:
            yield Problem(
                "volume_id",
                f"shared volume '{volume.name}' is in {theirs}, the cluster in {ours}; a cluster "
                f"can only use a volume of its own region: declare both in one region, or a volume "
                f"of its own for {ours}",
            )


RULES: tuple[Rule, ...] = (volume_in_region,)
"""Every rule over several resources."""
