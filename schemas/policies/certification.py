"""Declare the tests that nodes must pass, and describe the results: evidence and failures.

The certification kinds of the platforms derive their inputs and outputs from these models. Domains,
variants, options and metrics are those of NVIDIA's Cluster Readiness Engine ('Certification',
'BandwidthMeasurement'); a batch job of Slurm can measure the same.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from gpuform.schemas.models import (
    DEFAULT_NAMESPACE,
    InputModel,
    Namespace,
    OutputModel,
    OutputPart,
    Problem,
    optional_field,
    require_full_match,
)
from gpuform.schemas.policies.drain import SlurmInputs
from gpuform.schemas.rules import Default, Immutable, Local
from gpuform.schemas.values import UNKNOWN

Metric = Literal["busBandwidthGBps", "algBandwidthGBps", "goodputRatio", "avgTFLOPsPerGPU"]

METRIC_UNITS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "busBandwidthGBps": "GB/s",
        "algBandwidthGBps": "GB/s",
        "goodputRatio": "",
        "avgTFLOPsPerGPU": "TFLOPS",
    }
)
"""Units of the metrics that a floor may have, by the engine's names of the metrics."""

DEFAULT_WAIT_MINUTES: Final = 180
"""How long a certification may take if nothing is declared."""

_SHARE: Final = re.compile(r"([1-9]?[0-9])%", re.ASCII)
_Share = Annotated[
    str, require_full_match(_SHARE.pattern, "{text!r} is not a share: write 0% to 99%, such as 10%")
]
_Label = Annotated[
    str,
    require_full_match(
        r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?",
        "{text!r} is not a valid name: use a-z, 0-9 and -, at most 40 of them",
    ),
]
_Folder = Annotated[
    str,
    require_full_match(
        r"(?a)/[\w./-]+", "{text!r} is not a valid folder: write an absolute path without spaces"
    ),
]


def _validate_result_pattern(pattern: str) -> str:
    """Return a regular expression with exactly one group, the figure.

    Raises ValueError otherwise.
    """
    try:
        groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if groups != 1:
        raise ValueError(f"has {groups} groups: put only the figure in parentheses")
    return pattern


_CatalogueName = Annotated[
    str,
    require_full_match(
        r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?",
        "{text!r} is not a name of the catalogue: use a-z, 0-9 and -",
    ),
]


class BatchJobInputs(InputModel):
    """A batch job of Slurm that measures nodes, instead of the Cluster Readiness Engine."""

    script: str = Field(
        min_length=1,
        description="The batch script, with its first line `#!/bin/bash`. gpuform passes the "
        "nodes to sbatch, and reserves them exclusively.",
        examples=["#!/bin/bash\nsrun all_reduce_perf_mpi -b 8 -e 16G -f 2\n"],
    )
    result: Annotated[str, AfterValidator(_validate_result_pattern)] = Field(
        description="A regular expression for the line with the result, with the figure in "
        "parentheses. The last of several matching lines counts.",
        examples=[r"Avg bus bandwidth\s*:\s*([0-9.]+)"],
    )
    nodes: Literal["each", "all"] | None = optional_field(
        "each: one job for each node. all: one job for all nodes. each if not declared.",
        examples=["all"],
    )


class CategoryInputs(InputModel):
    """One test that nodes have to pass."""

    domain: _CatalogueName = Field(description="Domain of the test.", examples=["communication"])
    variant: _CatalogueName = Field(
        description="Variant of the test.", examples=["nccl-all-reduce"]
    )
    options: dict[str, Any] | None = optional_field(
        "Options of the Cluster Readiness Engine for this category, by the engine's names. "
        "`testScale: intra-node` tests each node alone, `diagnose` finds faulty nodes.",
        examples=[{"testScale": "intra-node"}],
    )
    floor: float | None = optional_field(
        "The lowest result that passes, in the unit of `metric`.",
        gt=0,
        allow_inf_nan=False,
        examples=[300],
    )
    tolerance: _Share | None = optional_field(
        "How far below the floor a result still passes; 0% if not declared.", examples=["10%"]
    )
    # Names of the engine's thresholds.
    metric: Metric | None = optional_field(
        "The metric of the floor; busBandwidthGBps for communication if not declared.",
        examples=["busBandwidthGBps"],
    )
    job: BatchJobInputs | None = optional_field(
        "The batch job that runs the test on a Slurm cluster.",
        examples=[{"script": "#!/bin/bash\nsrun all_reduce_perf\n", "result": r"busbw ([0-9.]+)"}],
    )

    @property
    def name(self) -> str:
        """The test's domain and variant in one text: `communication/nccl-all-reduce`."""
        return f"{self.domain}/{self.variant}"

    @property
    def measured_metric(self) -> str:
        """The metric of the result; empty if the test measures nothing."""
        return self.metric or ("busBandwidthGBps" if self.domain == "communication" else "")

    @property
    def unit(self) -> str:
        """Return the unit of the test's floor and result, such as GB/s; empty without a unit."""
        return METRIC_UNITS.get(self.measured_metric, "")

    @property
    def required(self) -> float | None:
        """Return the lowest passing result: the floor less the tolerance; None without a floor."""
        if self.floor is None:
            return None
        match = _SHARE.fullmatch(self.tolerance or "0%")
        share = int(match[1]) if match else 0
        return self.floor * (100 - share) / 100

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield the problems between a test's floor, metric, tolerance, options and batch job."""
        floor, job, options = (values.get(name) for name in ("floor", "job", "options"))
        if values.get("tolerance") is not None and floor is None:
            yield Problem("tolerance", "requires floor: declare floor, or remove tolerance")
        if values.get("metric") is not None and floor is None:
            yield Problem("metric", "requires floor: declare floor, or remove metric")
        # an unknown domain may turn out to be communication, which has a default metric
        may_have_metric = values.get("domain") in {UNKNOWN, "communication"} or values.get("metric")
        if floor is not None and job is None and not may_have_metric:
            yield Problem(
                "metric", f"is required with floor: declare one of {', '.join(METRIC_UNITS)}"
            )
        if job is not None and options is not None:
            yield Problem(
                "options",
                "configure the Cluster Readiness Engine only: write the options "
                "of a batch job in its script",
            )
        thresholds = options.get("thresholds") if isinstance(options, Mapping) else None
        # gpuform writes the floor as the engine's thresholds
        if floor is not None and thresholds is not None:
            yield Problem("options.thresholds", "conflict with floor: keep one of the two")


class CertificationPolicy(InputModel):
    """The tests that nodes have to pass, and how long they may take."""

    name: Annotated[_Label, Immutable] = Field(
        description="Name of the certification in Kubernetes, and of Slurm's jobs.",
        examples=["fabric"],
    )
    namespace: Annotated[Namespace | None, Immutable, Default(DEFAULT_NAMESPACE)] = optional_field(
        "Namespace of the certification in Kubernetes.", examples=["certification"]
    )
    categories: list[CategoryInputs] = Field(
        min_length=1,
        max_length=64,
        description="The tests that each node has to pass. With `job` a test is a batch job of "
        "the nodes' Slurm. Without `job`, NVIDIA's Cluster Readiness Engine runs the test: "
        "it has to be installed in the nodes' Kubernetes.",
        examples=[[{"domain": "communication", "variant": "nccl-all-reduce", "floor": 300}]],
    )
    nodes: Annotated[Literal["new", "all"] | None, Local] = optional_field(
        "Which nodes to test when some are not certified: only the uncertified nodes "
        "(new, the default), or all nodes again (all).",
        examples=["all"],
    )
    slurm: Annotated[SlurmInputs | None, Local] = optional_field(
        "How to reach the nodes' Slurm, for categories with `job`.",
        examples=[{"via": "ssh", "host": "slurm-login"}],
    )
    folder: Annotated[_Folder | None, Local] = optional_field(
        "Absolute path of a folder that the nodes share with the machine that "
        "runs Slurm's commands; a `job` writes its output there. The user's home if not "
        "declared; required with slurm: {via: exec}.",
        examples=["/home/certify"],
    )
    wait_minutes: Annotated[int | None, Local] = optional_field(
        "Highest number of minutes for all tests, including the wait for nodes in "
        f"use by jobs; {DEFAULT_WAIT_MINUTES} if not declared.",
        ge=1,
        examples=[120],
    )

    @property
    def uses_slurm(self) -> bool:
        """True if batch jobs of Slurm test the nodes instead of the engine."""
        return any(category.job is not None for category in self.categories)

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for tests listed twice, and for a mix of batch jobs and engine tests.

        Also for `slurm` and `folder` where they are not used, a setting of drains in `slurm`, and a
        missing `folder` for batch jobs run in a pod.
        """
        declared = values.get("categories")
        items = declared if isinstance(declared, list) else []
        categories = [item for item in items if isinstance(item, Mapping)]
        names = [(category.get("domain"), category.get("variant")) for category in categories]
        for index, name in enumerate(names):
            # A name that is not known yet may be that of another test.
            if UNKNOWN not in name and name in names[:index]:
                reason = (
                    f"{'/'.join(map(str, name))} is listed twice: make a certification for each"
                )
                yield Problem(f"categories[{index}]", reason)
        with_job = [category.get("job") is not None for category in categories]
        if any(with_job) and not all(with_job):
            reason = (
                "mix Slurm and the Readiness Engine: declare `job` in all categories, or in none"
            )
            yield Problem("categories", reason)
        # the folder is where a pod and the nodes meet: a pod's own files are lost
        slurm = values.get("slurm")
        for field in ("slurm", "folder"):
            if values.get(field) is not None and categories and not any(with_job):
                reason = "requires categories with `job`: remove it, or declare `job`"
                yield Problem(field, reason)
        if isinstance(slurm, Mapping) and slurm.get("drain_by") is not None:
            yield Problem("slurm.drain_by", "is a setting of drain: a certification drains no node")
        is_exec = not isinstance(slurm, Mapping) or slurm.get("via", "exec") == "exec"
        if any(with_job) and is_exec and slurm is not UNKNOWN and values.get("folder") is None:
            reason = "is required with slurm: {via: exec}: declare a folder that the nodes share"
            yield Problem("folder", reason)


class CategoryResult(OutputPart):
    """The result of one job of a category."""

    category: str = Field(description="Domain and variant of the category.")
    nodes: list[str] = Field(description="The nodes that the job ran on.")
    measured: float | None = optional_field("The result, if anything was measured.")
    unit: str = Field(default="", description="Unit of the result.")
    required: float | None = optional_field("The lowest result that passes.")
    passed: bool = Field(description="Whether the nodes have passed the category.")
    at: str = Field(default="", description="When the test ended, in UTC; empty: unknown.")


class NodeEvidence(OutputPart):
    """The tests that one node has passed."""

    node: str = Field(description="Name of the node.")
    machine: str = Field(default="", description="The machine that was tested.")
    driver: str = Field(default="", description="NVIDIA driver of the node; empty: unknown.")
    image: str = Field(default="", description="Operating system of the node; empty: unknown.")
    categories: list[str] = Field(description="The categories that the node has passed.")
    declared: str = Field(default="", description="Digest of the declared tests.")
    at: str = Field(default="", description="When the node passed, in UTC.")


class NodeFailure(OutputPart):
    """A node that has not passed a test."""

    node: str = Field(description="Name of the node.")
    machine: str = Field(default="", description="The machine that was tested.")
    category: str = Field(description="The category that the node failed.")
    because: str = Field(description="Why the node failed, with the figure.")
    is_alone: bool = Field(
        description="Whether the test blames this node alone: the node was tested alone, or "
        "the test names it as the cause."
    )
    at: str = Field(default="", description="When the node failed, in UTC.")


class Gap(OutputPart):
    """A node that the evidence does not cover."""

    node: str = Field(description="Name of the node.")
    because: str = Field(
        description="Why the evidence does not cover the node: a new node, another machine, "
        "another driver ..."
    )


class CertificationOutputs(OutputModel):
    """The evidence for a cluster's nodes, and the nodes that it does not cover any more."""

    status: str = Field(default="", description="Number of certified nodes, in words.")
    evidence: list[NodeEvidence] = Field(
        default=[], description="The tests that each node has passed."
    )
    results: list[CategoryResult] = Field(default=[], description="The results of the last run.")
    failures: list[NodeFailure] = Field(default=[], description="The nodes that have not passed.")
    gaps: list[Gap] = Field(default=[], description="The nodes that the evidence does not cover.")
    certified_at: str | None = optional_field("When the last run ended, in UTC.")
    run: str | None = optional_field("Id of the last run.")
    by: str | None = optional_field("The tester: an API group of Kubernetes, or Slurm.")
