"""Render the volume claims of a program as Kubernetes manifests, for `gpuform manifests`.

The program runs as for a preview, without requests to platforms or clusters.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.values import PropertyMap
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.together.volume_claims import VolumeClaimInputs, build_manifest
from gpuform.schemas.values import contains_unknown
from gpuform.stacks.access import NoAccess
from gpuform.stacks.engine.language_host import Program, record
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.resource_rules import find_kind
from gpuform.stacks.review.value_text import to_display_value
from gpuform.stacks.topology import run_topology

_CLAIM = ("together", "VolumeClaim")


@dataclass(frozen=True)
class ClusterClaims:
    """The volume claims of one cluster.

    `other_names` are further names that users may pass for it.
    """

    cluster: str
    other_names: frozenset[str]
    documents: list[dict[str, object]] = field(default_factory=list)

    @property
    def names(self) -> frozenset[str]:
        """Return all names by which users may select the cluster."""
        return self.other_names | {self.cluster}


def collect_claims(program: Program, entries: Sequence[ResourceState]) -> list[ClusterClaims]:
    """Run a program without a change on a platform, and return the volume claims by cluster.

    `entries` are the resources of the stack's state: only their ids and outputs are known.

    Raises:
        EngineError: a claim is not valid, or uses a value that is known only after `up`.
    """
    entries_by_urn = {entry.urn: entry for entry in entries if not entry.delete}

    def get_known_result(request: Registration | Read) -> tuple[str, PropertyMap]:
        entry = entries_by_urn.get(request.urn)
        # The declared inputs are newer than the outputs in the state.
        outputs = {**(entry.outputs if entry else {}), **request.inputs}
        # A cluster that does not exist yet still needs an id, to which its claims refer.
        return entry.id if entry else f"id-of-{request.name}", outputs

    recorded = record(program, get_known_result, program.config, run_topology)
    declared = {request.urn: request for request in recorded.declared}
    claims_by_cluster: dict[str, ClusterClaims] = {}
    for request in recorded.declared:
        if find_kind(request.type) == _CLAIM and isinstance(request, Registration):
            inputs = to_display_value(request.inputs)
            urns = (request.property_dependencies or {}).get("cluster_id", ())
            claims = _create_cluster_claims(str(inputs.get("cluster_id")), urns, declared)
            cluster_claims = claims_by_cluster.setdefault(claims.cluster, claims)
            cluster_claims.documents.append(_build_document(request.name, inputs))
    return list(claims_by_cluster.values())


def select_clusters(claims: Sequence[ClusterClaims], names: Collection[str]) -> list[ClusterClaims]:
    """Return the claims of the named clusters, or all claims if `names` is empty.

    Raises:
        NoAccess: no cluster with claims has a name.
    """
    known_names = {name for cluster_claims in claims for name in cluster_claims.names}
    unknown_names = [name for name in names if name not in known_names]
    if unknown_names:
        cluster_names = ", ".join(cluster_claims.cluster for cluster_claims in claims)
        raise NoAccess(
            f"no cluster '{unknown_names[0]}' has volume claims in this stack",
            hint=f"clusters with claims: {cluster_names}"
            if cluster_names
            else "the stack declares no claims",
        )
    return [
        cluster_claims
        for cluster_claims in claims
        if not names or cluster_claims.names & set(names)
    ]


def render_manifests(claims: Sequence[ClusterClaims]) -> str:
    """Return one YAML document for each claim, in the form of the platform's reference."""
    documents = [
        f"# cluster {escape_invisible(cluster_claims.cluster)}\n"
        + yaml.dump(document, Dumper=_Dumper, sort_keys=False)
        for cluster_claims in claims
        for document in cluster_claims.documents
    ]
    return "---\n".join(documents)


class _Dumper(yaml.SafeDumper):
    """Writes lists on one line, as the platform's reference does."""


_Dumper.add_representer(
    list,
    lambda dumper, items: dumper.represent_sequence(
        "tag:yaml.org,2002:seq", items, flow_style=True
    ),
)


def _create_cluster_claims(
    cluster_id: str, urns: Collection[str], declared: Mapping[str, Registration | Read]
) -> ClusterClaims:
    """Return an empty list of claims for a cluster.

    The cluster's name is that of its resource, or the id of a cluster outside of the program.
    """
    for urn in urns:
        request = declared.get(urn)
        name = to_display_value(request.inputs).get("cluster_name") if request else None
        other_names = {cluster_id, *([name] if isinstance(name, str) else [])}
        return ClusterClaims(name_of(urn), frozenset(other_names))
    return ClusterClaims(cluster_id, frozenset())


def _build_document(name: str, inputs: PropertyMap) -> dict[str, object]:
    """Build the Kubernetes manifest of a volume claim.

    Raises:
        NoAccess: the inputs are not valid, or contain a value that is known only after `up`.
    """
    # A dynamic resource brings its provider as a property, which no model has.
    declared = {key: value for key, value in inputs.items() if key != PROVIDER_KEY}
    values, problems = validate_inputs(VolumeClaimInputs, declared)
    if problems:
        raise NoAccess(f"volume claim '{name}': {'; '.join(map(str, problems))}")
    if contains_unknown(values):
        raise NoAccess(
            f"volume claim '{name}' uses a value that is known only after `gpuform up`",
            hint="run `gpuform up` first, or declare the value",
        )
    return build_manifest(VolumeClaimInputs.model_validate(values))
