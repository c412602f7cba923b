"""What NVIDIA's Cluster Readiness Engine keeps in a cluster's Kubernetes (API v1alpha1).

Facts are from its API reference ('Certification', 'Workflow', 'BandwidthMeasurement',
'GoodputMeasurement') and its design records 062 and 068, which say how nodes are listed.
"""

import binascii
import json
import re
import zlib
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from gpuform.schemas.ids import Id, Line
from gpuform.schemas.models import WireModel

SUCCEEDED_KEY: Final = "succeeded-nodes.csv.gz"
FAILED_KEY: Final = "failed-nodes.json.gz"
GROUPS_KEY: Final = "group-nodes.json.gz"
_DECIMAL: Final = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
_UNMEASURED: Final = frozenset({"LogsUnavailable", "NoDataCollected", "JobFailed"})
_MOST: Final = 16 * 1024 * 1024
"""Bytes that a list of nodes may have once it is unpacked."""


class Condition(WireModel):
    type: str = ""
    status: str = ""
    reason: Line = ""
    message: str = ""
    since: str = Field(default="", alias="lastTransitionTime")


class Metadata(WireModel):
    name: Id
    namespace: Id
    uid: Id
    annotations: dict[str, str] = Field(default_factory=dict)
    created_at: str = Field(default="", alias="creationTimestamp")
    deleted_at: str | None = Field(default=None, alias="deletionTimestamp")


class Reference(WireModel):
    name: Line = ""
    namespace: Line = ""


class CategoryStatus(WireModel):
    domain: str = ""
    variant: str = ""
    status: str = ""
    workflow: Reference | None = Field(default=None, alias="workflowRef")
    succeeded_nodes: Reference | None = Field(default=None, alias="succeededNodesRef")
    failed_nodes: Reference | None = Field(default=None, alias="failedNodesRef")


class CertificationStatus(WireModel):
    conditions: tuple[Condition, ...] = ()
    categories: tuple[CategoryStatus, ...] = Field(default=(), alias="categoryStatuses")


class Certification(WireModel):
    """One certification, and how far it is."""

    metadata: Metadata
    spec: dict[str, Any] = Field(default_factory=dict)
    status: CertificationStatus = CertificationStatus()

    def condition(self, kind: str) -> Condition | None:
        """The condition of a type that holds now."""
        return holding(self.status.conditions, kind)


class Group(WireModel):
    name: Line = ""
    phase: str = ""
    job: Reference | None = Field(default=None, alias="jobRef")
    nodes: tuple[str, ...] = ()
    """As older versions of the engine list them."""
    ended_at: str = Field(default="", alias="completionTime")


class Search(WireModel):
    """What a search for faults has come to."""

    suspects: tuple[str, ...] = Field(default=(), alias="suspectNodes")
    """At its end those that are confirmed."""


class Orchestration(WireModel):
    groups: tuple[Group, ...] = ()
    excluded_nodes: tuple[str, ...] = Field(default=(), alias="excludedNodes")
    exclusion_reason: str = Field(default="", alias="exclusionReason")
    search: Search | None = Field(default=None, alias="diagnose")


class WorkflowStatus(WireModel):
    conditions: tuple[Condition, ...] = ()
    orchestration: Orchestration = Orchestration()
    group_nodes: Reference | None = Field(default=None, alias="groupNodesRef")
    failed_nodes: Reference | None = Field(default=None, alias="failedNodesRef")
    succeeded_nodes: Reference | None = Field(default=None, alias="succeededNodesRef")


class Workflow(WireModel):
    """What runs one category."""

    metadata: Metadata
    status: WorkflowStatus = WorkflowStatus()


class Figure(WireModel):
    alg_bandwidth: str = Field(default="", alias="algBW")
    bus_bandwidth: str = Field(default="", alias="busBW")


class MeasurementSpec(WireModel):
    job: Reference = Field(default=Reference(), alias="jobRef")


class MeasurementStatus(WireModel):
    conditions: tuple[Condition, ...] = ()
    results: tuple[Figure, ...] = ()
    goodput: str = Field(default="", alias="result")
    tflops_per_gpu: str = Field(default="", alias="avgTFLOPSPerGPU")


class Measurement(WireModel):
    """A measurement of a job: of its bandwidth, or of its goodput."""

    metadata: Metadata
    spec: MeasurementSpec = MeasurementSpec()
    status: MeasurementStatus = MeasurementStatus()

    def figure(self, metric: str) -> float | None:
        """The final value of a metric (BandwidthMeasurement, 'How it works'): the greatest of all
        sizes, as the engine judges it; None while it is not final, and for what is no number.
        """
        done = holding(self.status.conditions, "Complete")
        if done is None or done.reason in _UNMEASURED:
            return None
        if "Bandwidth" in metric and done.reason != "JobSucceeded":
            return None
        told = {
            "busBandwidthGBps": [each.bus_bandwidth for each in self.status.results],
            "algBandwidthGBps": [each.alg_bandwidth for each in self.status.results],
            "goodputRatio": [self.status.goodput],
            "avgTFLOPsPerGPU": [self.status.tflops_per_gpu],
        }.get(metric, [])
        return max((value for each in told if (value := _number(each)) is not None), default=None)


class FailedNode(WireModel):
    """A node that a test names: the reason is a word of the engine's."""

    name: Line = Field(min_length=1)
    reason: Line = ""
    message: str = ""


def holding(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """The condition of a type whose status is True."""
    return next((each for each in conditions if each.type == kind and each.status == "True"), None)


def succeeded_in(config_map: Mapping[str, Any]) -> list[str]:
    """The nodes in a ConfigMap of those that have passed. Raises ValueError for another's."""
    return [name for name in _unpacked(config_map, SUCCEEDED_KEY).split(",") if name]


def failed_in(config_map: Mapping[str, Any]) -> list[FailedNode]:
    """The nodes in a ConfigMap of those that have failed. Raises ValueError for another's."""
    read = _read_json(_unpacked(config_map, FAILED_KEY))
    if not isinstance(read, list):
        raise ValueError("its list of failed nodes is no list")  # noqa: TRY004 - of the content
    return [FailedNode.model_validate(each) for each in read]


def groups_in(config_map: Mapping[str, Any]) -> dict[str, list[str]]:
    """Group -> nodes in a ConfigMap of groups. Raises ValueError for another's."""
    read = _read_json(_unpacked(config_map, GROUPS_KEY))
    if not isinstance(read, dict) or not all(isinstance(each, list) for each in read.values()):
        raise ValueError("its groups are no lists of nodes")
    return {str(name): [str(node) for node in nodes] for name, nodes in read.items()}


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unpacked(config_map: Mapping[str, Any], key: str) -> str:
    data = config_map.get("binaryData")
    packed = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(packed, str):
        raise ValueError(f"it has no {key}")  # noqa: TRY004 - of the content
    try:
        reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        text = reader.decompress(b64decode(packed, validate=True), _MOST)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"its {key} cannot be unpacked") from error
    if reader.unconsumed_tail:
        raise ValueError(f"its {key} is larger than {_MOST} bytes")
    if not reader.eof or reader.unused_data:
        raise ValueError(f"its {key} is cut off, or has more than one part")
    return text.decode()


def _number(text: str) -> float | None:
    value = float(text) if _DECIMAL.fullmatch(text) else None
    return value if value is not None and value < float("inf") else None
