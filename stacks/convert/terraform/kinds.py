"""Convert resources of the official Terraform providers to gpuform's kinds (Together reference,
'Terraform').

From the documentation of togethercomputer/together 0.x (together_beta_cluster and
together_beta_cluster_storage) and of SamsungSDSCloud/samsungcloudplatformv2 4.x
(multinodegpucluster_gpunode). Their names are the platforms' own, as gpuform's are; those of
together_gpu_cluster (Together reference, 'Terraform') are others.

Together's official provider calls it together_beta_cluster, with the API's own names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.models import InputModel
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    InterpolatedText,
    ResourceReference,
    Value,
)

NAMES: Final[Mapping[str, str]] = {
    "name": "cluster_name",
    "instance_type": "gpu_type",
    "reservation_days": "duration_days",
}
"""The API's name of each argument that has another one here."""

VALUES: Final = frozenset({"gpu_type", "billing_type"})
"""The arguments whose values have other words here."""

_BILLING: Final = {"prepaid": "RESERVED", "reserved": "RESERVED", "on_demand": "ON_DEMAND"}
DRIVERS: Final = ("cuda_version", "nvidia_driver_version", "driver_version")
"""Some of these a cluster has to declare: the pair, or both in one."""


def words(name: str, value: Any) -> Any:
    """A value of ours: `H100-SXM` is H100_SXM, `prepaid` RESERVED."""
    if name == "shared_volume":
        return _volume(value)
    if name not in VALUES or not isinstance(value, str):
        return value
    plain = value.replace("-", "_")
    return plain.upper() if name == "gpu_type" else _BILLING.get(plain.lower(), plain.upper())


def whole_cluster(
    declared: Mapping[str, Value], attributes: Mapping[str, Any]
) -> Mapping[str, Value]:
    """With the driver that the state tells, for the block has no argument for it, and the volume.

    The volume that was made with the cluster is attached by its id, where the state tells it.
    """
    found = dict(declared)
    if not any(name in found for name in DRIVERS):
        found |= {name: attributes[name] for name in DRIVERS if attributes.get(name)}
    volume = found.pop("shared_volume", None)
    if isinstance(volume, Mapping):
        if volume_id := _volume_id(attributes):
            found["volume_id"] = volume_id
        else:
            found["shared_volume"] = {**volume, "region": found.get("region")}
    return found


def _volume(value: Any) -> Any:
    """The nested block, which HCL and states hold in a list."""
    block = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(block, Mapping):
        return value
    return {"volume_name" if name == "name" else name: item for name, item in block.items()}


def _volume_id(attributes: Mapping[str, Any]) -> str:
    volume = attributes.get("shared_volume")
    if not isinstance(volume, Mapping):
        return ""
    return str(volume.get("volume_id") or volume.get("id") or "")


@dataclass(frozen=True, slots=True)
class TerraformKind:
    """One type of theirs.

    `inner` are arguments that are objects whose parts are arguments here; `ignored` says nothing of
    the object on the platform; changes of what `spelt` holds cannot be ignored by that name. `id`
    makes the id of an import from what is declared and from the attributes of the state; `more`
    adds what their names do not tell. `names` are ours for theirs, where they differ, and `words`
    makes a plain value of one of ours `worded`; `whole` adds to what is declared what the state
    tells alone. One of `needed` has to be declared: a person is asked for the last.
    """

    section: str
    platform: str
    ids: tuple[str, ...]
    id: Callable[[Mapping[str, Value], Mapping[str, Any]], str | None]
    inner: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    spelt: tuple[str, ...] = ()
    more: Callable[[Mapping[str, Any]], Mapping[str, Value]] = field(default=lambda _: {})
    names: Mapping[str, str] = field(default_factory=dict)
    worded: frozenset[str] = frozenset()
    words: Callable[[str, Any], Any] = field(default=lambda _, value: value)
    whole: Callable[[Mapping[str, Value], Mapping[str, Any]], Mapping[str, Value]] = field(
        default=lambda declared, _: declared
    )
    needed: tuple[str, ...] = ()

    def name(self, theirs: str) -> str:
        """Ours for an argument of theirs."""
        return self.names.get(theirs, theirs)


def _attribute(*names: str) -> Callable[[Mapping[str, Value], Mapping[str, Any]], str | None]:
    def find(_: Mapping[str, Value], attributes: Mapping[str, Any]) -> str | None:
        return next((str(attributes[name]) for name in names if attributes.get(name)), None)

    return find


def _pool_id(declared: Mapping[str, Value], attributes: Mapping[str, Any]) -> str | None:
    """Vendor pool, fabric and prefix, as gpuform calls a pool."""
    parts = [declared.get(name) for name in ("node_pool_id", "cluster_fabric_name")]
    parts.append(_prefix(attributes) or declared.get("gpu_node_name_prefix"))
    return "/".join(map(str, parts)) if all(isinstance(part, str) for part in parts) else None


def _prefix(attributes: Mapping[str, Any]) -> str:
    """Their state does not keep the prefix, but names that begin with it: PREFIX-001."""
    names = [str(each.get("gpu_node_name") or "") for each in _servers(attributes)]
    return names[0].rpartition("-")[0] if names else ""


def _servers(attributes: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    servers = attributes.get("server_details")
    return [each for each in servers if isinstance(each, Mapping)] if servers else []


def _pool(attributes: Mapping[str, Any]) -> Mapping[str, Value]:
    servers = _servers(attributes)
    found: dict[str, Value] = {"count": len(servers)}
    if _prefix(attributes):
        found["gpu_node_name_prefix"] = _prefix(attributes)
    states = {str(each.get("state")) for each in servers}
    if states == {"STOPPED"}:
        found["state"] = "STOPPED"
    return found


KINDS: Final[Mapping[str, TerraformKind]] = {
    "together_beta_cluster": TerraformKind(
        "clusters",
        "together",
        ("id", "cluster_id"),
        _attribute("cluster_id", "id"),
        spelt=("driver_version",),
    ),
    "together_gpu_cluster": TerraformKind(
        "clusters",
        "together",
        ("id", "cluster_id"),
        _attribute("cluster_id", "id"),
        names=NAMES,
        worded=VALUES,
        words=words,
        whole=whole_cluster,
        needed=DRIVERS,
    ),
    "together_beta_cluster_storage": TerraformKind(
        "shared_volumes",
        "together",
        ("id", "volume_id"),
        _attribute("volume_id", "id"),
    ),
    "samsungcloudplatformv2_multinodegpucluster_gpunode": TerraformKind(
        "node_pools",
        "scp",
        (),
        _pool_id,
        inner=("cluster_fabric_details",),
        ignored=("server_details",),
        more=_pool,
    ),
}


def flat(attributes: Mapping[str, Any], kind: TerraformKind) -> dict[str, Any]:
    """The attributes with those of inner objects beside them, by our names and in our words."""
    inner = (attributes.get(name) for name in kind.inner)
    parts = {k: v for each in inner if isinstance(each, Mapping) for k, v in each.items()}
    named = {kind.name(name): value for name, value in {**parts, **attributes}.items()}
    return {name: kind.words(name, value) for name, value in named.items()}


def as_raw(value: Any) -> Any:
    """A plain value as python-hcl2 has literals."""
    if not isinstance(value, str):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + escaped.replace("${", "$${").replace("%{", "%%{") + '"'


def spelt(properties: dict[str, Value], model: type[InputModel]) -> dict[str, Value]:
    """Their provider takes choices in any case: in capitals what is refused only as it is."""
    refused = {problem.path for problem in validate_inputs(model, _known(properties))[1]}
    louder = {
        name: value.upper()
        for name, value in properties.items()
        if name in refused and isinstance(value, str)
    }
    still = {
        problem.path for problem in validate_inputs(model, _known({**properties, **louder}))[1]
    }
    return {**properties, **{name: text for name, text in louder.items() if name not in still}}


def is_plain(value: Value) -> bool:
    """Whether it is all said: nothing in it is of another resource, or of the configuration."""
    if isinstance(value, Mapping):
        return all(map(is_plain, value.values()))
    if isinstance(value, list):
        return all(map(is_plain, value))
    return not isinstance(value, ResourceReference | ConfigReference | InterpolatedText)


def _known(properties: Mapping[str, Value]) -> dict[str, Any]:
    return {
        name: UNKNOWN
        if isinstance(value, ResourceReference | ConfigReference | InterpolatedText)
        else value
        for name, value in properties.items()
    }
