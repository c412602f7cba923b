"""The objects inside a declaration of the registry's records."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from gpuform.schemas.aios.totals import gpu_problems
from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.rules import Default, KeyedBy, Unordered


class GpuInputs(InputModel):
    """One GPU."""

    model_config = ConfigDict(protected_namespaces=())

    model_name: str = Field(min_length=1, description="Model, such as NVIDIA A100.")
    memory: int = Field(ge=0, description="Its memory in MB.")


class NodeGpusInputs(InputModel):
    """The GPUs of a node."""

    model_config = ConfigDict(protected_namespaces=())

    count: int | None = Field(
        default=None, ge=0, description="How many; computed when they are listed."
    )
    memory: int | None = Field(
        default=None, ge=0, description="Memory of all in MB; computed when they are listed."
    )
    gpus: list[GpuInputs] | None = Field(default=None, description="The GPUs one by one.")
    features: Annotated[list[str] | None, Unordered] = Field(
        default=None, description="What they can do, such as tensor_cores."
    )
    model_names: Annotated[list[str] | None, Unordered] = Field(
        default=None, description="The distinct models; computed when the GPUs are listed."
    )

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        return gpu_problems(values)


class VcpusInputs(InputModel):
    """The virtual CPUs of a node."""

    count: int = Field(ge=0, description="How many.")


class StorageInputs(InputModel):
    """The storage of a node."""

    disks: int = Field(ge=0, description="How many disks.")
    size: int = Field(ge=0, description="Size of all in MB.")


class NetworkInputs(InputModel):
    """The network of a node."""

    interfaces: int = Field(ge=0, description="How many interfaces.")
    tx_bandwidth: float = Field(ge=0, description="Bandwidth of sending in MB/s.")
    rx_bandwidth: float = Field(ge=0, description="Bandwidth of receiving in MB/s.")


class HardwareInputs(InputModel):
    """What a node has."""

    gpus: NodeGpusInputs = Field(description="Its GPUs.")
    vcpus: VcpusInputs = Field(description="Its virtual CPUs.")
    memory: int = Field(ge=0, description="Its memory in MB.")
    swap: int = Field(ge=0, description="Its swap space in MB.")
    storage: StorageInputs = Field(description="Its storage.")
    network: NetworkInputs = Field(description="Its network.")


class _NamedInputs(InputModel):
    """Here, so that the id comes first."""

    id: str = Field(min_length=1, description="Id of the node in this cluster.")


class NodeInputs(HardwareInputs, _NamedInputs):
    """One node of a cluster."""


class NodesInputs(InputModel):
    """The nodes of a cluster."""

    count: int | None = Field(default=None, ge=0, description="How many; computed.")
    node_data: Annotated[list[NodeInputs] | None, KeyedBy("id", closed=True)] = Field(
        default=None, description="Each of them. Not together with aios.GpuNode resources."
    )


class TotalGpusInputs(InputModel):
    """All GPUs of a cluster."""

    count: int | None = Field(default=None, ge=0, description="How many; computed.")
    memory: int | None = Field(default=None, ge=0, description="Memory of all in MB; computed.")


class TotalVcpusInputs(InputModel):
    """All virtual CPUs of a cluster."""

    count: int | None = Field(default=None, ge=0, description="How many; computed.")


class TotalStorageInputs(InputModel):
    """All storage of a cluster."""

    disks: int | None = Field(default=None, ge=0, description="How many disks; computed.")
    size: int | None = Field(default=None, ge=0, description="Size of all in MB; computed.")


class TotalNetworkInputs(InputModel):
    """The network of all nodes of a cluster."""

    interfaces: int | None = Field(default=None, ge=0, description="How many; computed.")
    tx_bandwidth: float | None = Field(
        default=None, ge=0, description="Bandwidth of sending in MB/s; computed."
    )
    rx_bandwidth: float | None = Field(
        default=None, ge=0, description="Bandwidth of receiving in MB/s; computed."
    )


class ConfigInputs(InputModel):
    """What the cluster's controller uses."""

    system_names: ClassVar[Mapping[str, str]] = {
        "url_map": "is filled in by the system: leave it out, it is an output of the cluster"
    }

    policy_executor_id: Annotated[str | None, Default("")] = Field(
        default=None, description="Id of a policy executor of one's own."
    )
    policy_execution_mode: Annotated[str | None, Default("local")] = Field(
        default=None, description="Where policies are executed, such as local."
    )
    custom_policy_system: Any = Field(
        default=None, description="A policy system of one's own: any value, kept as it is."
    )
    public_hostname: str = Field(min_length=1, description="Public host name of the cluster.")
    use_gateway: Annotated[bool | None, Default(True)] = Field(
        default=None, description="Whether it is reached through a gateway."
    )
    actions_policy_map: Any = Field(
        default=None, description="Policies by the actions that they decide: any value."
    )


class ClusterMetadataInputs(InputModel):
    """What people want to know of the cluster."""

    name: str = Field(description="A name for people.")
    description: str = Field(description="What it is for.")
    owner: str = Field(description="Who owns or manages it.")
    email: str | None = Field(default=None, description="Address for mail.")
    countries: Annotated[list[str] | None, Unordered] = Field(
        default=None, description="Countries that it belongs to."
    )
    misc_contact_info: Any = Field(
        default=None, description="More about contact and support: any value."
    )
    additional_info: Any = Field(
        default=None,
        description="Anything else: any value. Give it as a pulumi.Output.secret when it holds a "
        "secret, such as a join command.",
    )
