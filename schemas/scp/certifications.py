"""A certification of GPU nodes of Samsung SCP."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import Field

from gpuform.schemas.certification import CertificationPolicy
from gpuform.schemas.drain import KubernetesInputs
from gpuform.schemas.models import Problem
from gpuform.schemas.rules import Immutable, Local, TakenFrom, Unordered
from gpuform.schemas.scp.regions import RegionId
from gpuform.schemas.values import UNKNOWN


class CertificationInputs(CertificationPolicy):
    """A proof that GPU nodes are fit: what depends on it waits for it."""

    region_id: Annotated[RegionId | None, Immutable] = Field(
        default=None,
        description="Region of the nodes; that of the account's settings when not declared.",
        examples=["kr-west1"],
    )
    node_ids: Annotated[list[str], TakenFrom("NodePool", "node_ids"), Unordered] = Field(
        min_length=1,
        description="Ids of the nodes that are tested: with new ones these are tested.",
        examples=["{{ node_pools.train.node_ids }}"],
    )
    kubernetes: Annotated[KubernetesInputs | None, Local] = Field(
        default=None,
        description="The Kubernetes of the nodes, each node under its own name: it has NVIDIA's "
        "Cluster Readiness Engine.",
        examples=[{"kubeconfig": "~/.kube/train"}],
    )

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        yield from super().problems(values)
        told = values.get("categories")
        listed = told if isinstance(told, list) else []
        with_job = any(isinstance(each, Mapping) and each.get("job") is not None for each in listed)
        slurm, kubernetes = values.get("slurm"), values.get("kubernetes")
        if told is UNKNOWN or UNKNOWN in listed:
            return
        if with_job and slurm is None:
            yield Problem("slurm", "is needed: declare where the Slurm of the nodes can be asked")
        is_exec = isinstance(slurm, Mapping) and slurm.get("via", "exec") == "exec"
        if kubernetes is None and (not with_job or is_exec):
            reason = "is needed: declare the Kubernetes of the nodes"
            yield Problem("kubernetes", reason)
