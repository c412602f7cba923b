"""What people apply to clusters themselves: the claims that a program declares, as YAML.

The program is run as for a preview, but sends no request to platforms or clusters.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import yaml

from gpuform.providers.forms import PROVIDER_KEY
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.together.volume_claims import VolumeClaimInputs, build_manifest
from gpuform.schemas.values import contains_unknown
from gpuform.stacks.access.errors import NoAccess
from gpuform.stacks.engine.language_host import Program, record
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.resource_rules import kind_of
from gpuform.stacks.review.value_text import to_display_value
from gpuform.stacks.topology_runner import run_topology

_CLAIM = ("together", "VolumeClaim")


@dataclass(frozen=True)
class Claims:
    """The claims of one cluster, by the names that people may call it."""

    cluster: str
    also: frozenset[str]
    documents: list[dict[str, object]] = field(default_factory=list)

    @property
    def names(self) -> frozenset[str]:
        return self.also | {self.cluster}


def claims_of(program: Program, entries: Sequence[ResourceState]) -> list[Claims]:
    """The claims that a program declares, by cluster.

    `entries` are those of the stack's state: ids and outputs are known by them, if at all. Raises
    EngineError for a claim that is wrong, or needs what is not known before `up`.
    """
    known = {entry.urn: entry for entry in entries if not entry.delete}

    def answer(asked: Registration | Read) -> tuple[str, PropertyMap]:
        entry = known.get(asked.urn)
        outputs = {**(entry.outputs if entry else {}), **asked.inputs}
        return entry.id if entry else f"id-of-{asked.name}", outputs

    recorded = record(program, answer, program.config, run_topology)
    declared = {asked.urn: asked for asked in recorded.declared}
    found: dict[str, Claims] = {}
    for asked in recorded.declared:
        if kind_of(asked.type) == _CLAIM and isinstance(asked, Registration):
            inputs = to_display_value(asked.inputs)
            urns = (asked.property_dependencies or {}).get("cluster_id", ())
            claims = _of_cluster(str(inputs.get("cluster_id")), urns, declared)
            kept = found.setdefault(claims.cluster, claims)
            kept.documents.append(_document(asked.name, inputs))
    return list(found.values())


def chosen(found: Sequence[Claims], names: Collection[str]) -> list[Claims]:
    """Those of the clusters of these names; all without names. Raises EngineError."""
    known = {name for each in found for name in each.names}
    unknown = [name for name in names if name not in known]
    if unknown:
        there = ", ".join(each.cluster for each in found)
        raise NoAccess(
            f"no cluster '{unknown[0]}' has volume claims in this stack",
            hint=f"clusters with claims: {there}" if there else "the stack declares no claims",
        )
    return [each for each in found if not names or each.names & set(names)]


def as_yaml(found: Sequence[Claims]) -> str:
    """One document for each claim, in the form of the platform's reference."""
    texts = [
        f"# cluster {escape_invisible(each.cluster)}\n"
        + yaml.dump(document, Dumper=_Dumper, sort_keys=False)
        for each in found
        for document in each.documents
    ]
    return "---\n".join(texts)


class _Dumper(yaml.SafeDumper):
    """Lists in one line, as the reference writes them."""


_Dumper.add_representer(
    list,
    lambda dumper, items: dumper.represent_sequence(
        "tag:yaml.org,2002:seq", items, flow_style=True
    ),
)


def _of_cluster(
    cluster_id: str, urns: Collection[str], declared: Mapping[str, Registration | Read]
) -> Claims:
    """A cluster of the stack by its resource; another one by its id."""
    for urn in urns:
        asked = declared.get(urn)
        name = to_display_value(asked.inputs).get("cluster_name") if asked else None
        also = {cluster_id, *([name] if isinstance(name, str) else [])}
        return Claims(name_of(urn), frozenset(also))
    return Claims(cluster_id, frozenset())


def _document(name: str, inputs: PropertyMap) -> dict[str, object]:
    declared = {key: value for key, value in inputs.items() if key != PROVIDER_KEY}
    values, problems = validate_inputs(VolumeClaimInputs, declared)
    if problems:
        raise NoAccess(f"volume claim '{name}': {'; '.join(map(str, problems))}")
    if contains_unknown(values):
        raise NoAccess(
            f"volume claim '{name}' needs what is known only after it was made",
            hint="run `gpuform up` first, or write the value down",
        )
    return build_manifest(VolumeClaimInputs.model_validate(values))
