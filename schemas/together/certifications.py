"""A certification of the nodes of a Together cluster."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from gpuform.schemas.certification import WAIT_MINUTES, CategoryInputs
from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.rules import Default, Immutable, Local, Refers, TakenFrom
from gpuform.schemas.slurm import SlurmInputs
from gpuform.schemas.together.volume_claims import DEFAULT_NAMESPACE, Namespace
from gpuform.schemas.values import UNKNOWN

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")


def _checked_name(text: str) -> str:
    if not _LABEL.fullmatch(text):
        raise ValueError(f"{text!r} is no name for it: use a-z, 0-9 and -, at most 40 of them")
    return text


class CertificationInputs(InputModel):
    """A proof that a cluster's nodes are fit: what depends on it waits for it."""

    cluster_id: Annotated[str, Immutable, Refers("Cluster")] = Field(
        min_length=1,
        description="Cluster whose nodes are tested.",
        examples=["{{ clusters.train.id }}"],
    )
    num_gpus: Annotated[int, TakenFrom("Cluster", "num_gpus")] = Field(
        ge=8,
        multiple_of=8,
        description="How many GPUs the cluster has: with more of them the new nodes are tested.",
        examples=["{{ clusters.train.num_gpus }}"],
    )
    name: Annotated[Annotated[str, AfterValidator(_checked_name)], Immutable] = Field(
        description="Name of the certification in the cluster's Kubernetes, and of Slurm's jobs.",
        examples=["fabric"],
    )
    namespace: Annotated[Namespace | None, Immutable, Default(DEFAULT_NAMESPACE)] = Field(
        default=None, description="Its namespace in Kubernetes.", examples=["certification"]
    )
    categories: list[CategoryInputs] = Field(
        min_length=1,
        max_length=64,
        description="The tests that each node has to pass. With `job` they are batch jobs of the "
        "cluster's Slurm; without, NVIDIA's Cluster Readiness Engine runs them, which has to be "
        "installed in the cluster.",
        examples=[[{"domain": "communication", "variant": "nccl-all-reduce", "floor": 300}]],
    )
    nodes: Annotated[Literal["new", "all"] | None, Local] = Field(
        default=None,
        description="Which nodes are tested when some are not proven: those alone (new), or all "
        "once more. new when not declared.",
        examples=["all"],
    )
    slurm: Annotated[SlurmInputs | None, Local] = Field(
        default=None,
        description="Where the cluster's Slurm can be asked, for categories with `job`.",
        examples=[{"via": "ssh", "host": "slurm-login"}],
    )
    wait_minutes: Annotated[int | None, Local] = Field(
        default=None,
        ge=1,
        description="For how many minutes the tests may go on, the wait for busy nodes included; "
        f"{WAIT_MINUTES} when not declared.",
        examples=[120],
    )

    @property
    def with_slurm(self) -> bool:
        """Whether batch jobs test, and not the engine."""
        return any(each.job is not None for each in self.categories)

    @classmethod
    def problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        told = values.get("categories")
        items = told if isinstance(told, list) else []
        listed = [each for each in items if isinstance(each, Mapping)]
        names = [(each.get("domain"), each.get("variant")) for each in listed]
        for at, name in enumerate(names):
            if UNKNOWN not in name and name in names[:at]:
                reason = f"{'/'.join(map(str, name))} is there twice: make a certification for each"
                yield Problem(f"categories[{at}]", reason)
        with_job = [each.get("job") is not None for each in listed]
        if any(with_job) and not all(with_job):
            reason = "have a `job` or have none: Slurm tests all of them, or the engine does"
            yield Problem("categories", reason)
        if values.get("slurm") is not None and listed and not any(with_job):
            yield Problem("slurm", "is for categories with `job`: this one asks Kubernetes alone")
