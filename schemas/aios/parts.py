"""The objects inside a declaration of the registry's records."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from gpuform.schemas.aios.totals import gpu_problems
from gpuform.schemas.ids import Line
from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.rules import Default, KeyedBy, Unordered


class GpuInputs(InputModel):
    """One GPU."""

    model_config = ConfigDict(protected_namespaces=())

    model_name: str = Field(
        min_length=1, description="Model, such as NVIDIA A100.", examples=["NVIDIA A100"]
    )
    memory: int = Field(ge=0, description="Its memory in MB.", examples=[16384])


class NodeGpusInputs(InputModel):
    """The GPUs of a node."""

    model_config = ConfigDict(protected_namespaces=())

    count: int | None = Field(
        default=None, ge=0, description="How many; computed when they are listed.", examples=[2]
    )
    memory: int | None = Field(
        default=None,
        ge=0,
        description="Memory of all in MB; computed when they are listed.",
        examples=[32768],
    )
    gpus: list[GpuInputs] | None = Field(
        default=None,
        description="The GPUs one by one.",
        examples=[[{"model_name": "NVIDIA A100", "memory": 16384}]],
    )
    features: Annotated[list[str] | None, Unordered] = Field(
        default=None,
        description="What they can do, such as tensor_cores.",
        examples=[["fp16", "tensor_cores"]],
    )
    model_names: Annotated[list[str] | None, Unordered] = Field(
        default=None,
        description="The distinct models; computed when the GPUs are listed.",
        examples=[["NVIDIA A100"]],
    )

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        return gpu_problems(values)


class VcpusInputs(InputModel):
    """The virtual CPUs of a node."""

    count: int = Field(ge=0, description="How many.", examples=[32])


class StorageInputs(InputModel):
    """The storage of a node."""

    disks: int = Field(ge=0, description="How many disks.", examples=[2])
    size: int = Field(ge=0, description="Size of all in MB.", examples=[1048576])


class NetworkInputs(InputModel):
    """The network of a node."""

    interfaces: int = Field(ge=0, description="How many interfaces.", examples=[2])
    tx_bandwidth: float = Field(ge=0, description="Bandwidth of sending in MB/s.", examples=[10000])
    rx_bandwidth: float = Field(
        ge=0, description="Bandwidth of receiving in MB/s.", examples=[10000]
    )


class HardwareInputs(InputModel):
    """What a node has."""

    gpus: NodeGpusInputs = Field(
        description="Its GPUs.",
        examples=[{"gpus": [{"model_name": "NVIDIA A100", "memory": 16384}]}],
    )
    vcpus: VcpusInputs = Field(description="Its virtual CPUs.", examples=[{"count": 32}])
    memory: int = Field(ge=0, description="Its memory in MB.", examples=[131072])
    swap: int = Field(ge=0, description="Its swap space in MB.", examples=[8192])
    storage: StorageInputs = Field(
        description="Its storage.", examples=[{"disks": 2, "size": 1048576}]
    )
    network: NetworkInputs = Field(
        description="Its network.",
        examples=[{"interfaces": 2, "tx_bandwidth": 10000, "rx_bandwidth": 10000}],
    )


class _NamedInputs(InputModel):
    """Here, so that the id comes first."""

    id: Line = Field(
        min_length=1, description="Id of the node in this cluster.", examples=["node-1"]
    )


class NodeInputs(HardwareInputs, _NamedInputs):
    """One node of a cluster."""


class NodesInputs(InputModel):
    """The nodes of a cluster."""

    count: int | None = Field(default=None, ge=0, description="How many; computed.", examples=[1])
    node_data: Annotated[list[NodeInputs] | None, KeyedBy("id", closed=True)] = Field(
        default=None,
        description="Each of them. Not together with aios.GpuNode resources.",
        examples=[
            [
                {
                    "gpus": {"gpus": [{"model_name": "NVIDIA A100", "memory": 16384}]},
                    "vcpus": {"count": 32},
                    "memory": 131072,
                    "swap": 8192,
                    "storage": {"disks": 2, "size": 1048576},
                    "network": {"interfaces": 2, "tx_bandwidth": 10000, "rx_bandwidth": 10000},
                    "id": "node-1",
                }
            ]
        ],
    )


class TotalGpusInputs(InputModel):
    """All GPUs of a cluster."""

    count: int | None = Field(default=None, ge=0, description="How many; computed.", examples=[3])
    memory: int | None = Field(
        default=None, ge=0, description="Memory of all in MB; computed.", examples=[49152]
    )


class TotalVcpusInputs(InputModel):
    """All virtual CPUs of a cluster."""

    count: int | None = Field(default=None, ge=0, description="How many; computed.", examples=[48])


class TotalStorageInputs(InputModel):
    """All storage of a cluster."""

    disks: int | None = Field(
        default=None, ge=0, description="How many disks; computed.", examples=[3]
    )
    size: int | None = Field(
        default=None, ge=0, description="Size of all in MB; computed.", examples=[1572864]
    )


class TotalNetworkInputs(InputModel):
    """The network of all nodes of a cluster."""

    interfaces: int | None = Field(
        default=None, ge=0, description="How many; computed.", examples=[3]
    )
    tx_bandwidth: float | None = Field(
        default=None, ge=0, description="Bandwidth of sending in MB/s; computed.", examples=[15000]
    )
    rx_bandwidth: float | None = Field(
        default=None,
        ge=0,
        description="Bandwidth of receiving in MB/s; computed.",
        examples=[15000],
    )


class ConfigInputs(InputModel):
    """What the cluster's controller uses."""

    system_names: ClassVar[Mapping[str, str]] = {
        "url_map": "is filled in by the system: leave it out, it is an output of the cluster"
    }

    policy_executor_id: Annotated[str | None, Default("")] = Field(
        default=None,
        description="Id of a policy executor of one's own.",
        examples=["policy-exec-007"],
    )
    policy_execution_mode: Annotated[str | None, Default("local")] = Field(
        default=None, description="Where policies are executed, such as local.", examples=["local"]
    )
    custom_policy_system: Any = Field(
        default=None,
        description="A policy system of one's own: any value, kept as it is.",
        examples=[{"name": "AdvancedPolicyRunner", "version": "2.1.0"}],
    )
    public_hostname: str = Field(
        min_length=1,
        description="Public host name of the cluster.",
        examples=["cluster-west-vision-001.company.net"],
    )
    use_gateway: Annotated[bool | None, Default(True)] = Field(
        default=None, description="Whether it is reached through a gateway.", examples=[False]
    )
    actions_policy_map: Any = Field(
        default=None,
        description="Policies by the actions that they decide: any value.",
        examples=[{"onScaleUp": "evaluate-gpu-availability", "onFailure": "notify-admin"}],
    )


class ClusterMetadataInputs(InputModel):
    """What people want to know of the cluster."""

    name: str = Field(description="A name for people.", examples=["West"])
    description: str = Field(description="What it is for.", examples=["Serves vision models."])
    owner: str = Field(description="Who owns or manages it.", examples=["AI Infrastructure"])
    email: str | None = Field(
        default=None, description="Address for mail.", examples=["infra@example.com"]
    )
    countries: Annotated[list[str] | None, Unordered] = Field(
        default=None, description="Countries that it belongs to.", examples=[["USA", "Canada"]]
    )
    misc_contact_info: Any = Field(
        default=None,
        description="More about contact and support: any value.",
        examples=[{"slack": "#ml-infra"}],
    )
    additional_info: Any = Field(
        default=None,
        description="Anything else: any value. Give it as a pulumi.Output.secret when it holds a "
        "secret, such as a join command.",
        examples=[{"rack": "B12"}],
    )
