"""Define the objects that NVIDIA's Cluster Readiness Engine keeps in Kubernetes (API v1alpha1).

Read by the certifications of the providers. Facts are from the engine's API reference
('Certification', 'Workflow', 'BandwidthMeasurement', 'GoodputMeasurement') and from its design
records 062 and 068, which describe the lists of nodes.
"""

import binascii
import json
import re
import zlib
from base64 import b64decode
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field

from gpuform.schemas.models import Id, Line, WireModel

SUCCEEDED_KEY: Final = "succeeded-nodes.csv.gz"
FAILED_KEY: Final = "failed-nodes.json.gz"
GROUPS_KEY: Final = "group-nodes.json.gz"
_DECIMAL: Final = re.compile(r"[0-9]+(\.[0-9]+)?", re.ASCII)
_REASONS_WITHOUT_RESULT: Final = frozenset({"LogsUnavailable", "NoDataCollected", "JobFailed"})
_MAX_UNPACKED_BYTES: Final = 16 * 1024 * 1024
"""Bytes that a list of nodes may have once it is unpacked.

The list comes from the cluster, so its size is limited.
"""


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
    """One certification, and its progress."""

    metadata: Metadata
    spec: dict[str, Any] = Field(default_factory=dict)
    status: CertificationStatus = CertificationStatus()

    def find_condition(self, kind: str) -> Condition | None:
        """Return the engine's present condition of this type if its status is True, else None."""
        return find_true_condition(self.status.conditions, kind)


class Group(WireModel):
    name: Line = ""
    phase: str = ""
    job: Reference | None = Field(default=None, alias="jobRef")
    nodes: tuple[str, ...] = ()
    """The nodes as older versions of the engine list them."""
    ended_at: str = Field(default="", alias="completionTime")


class Search(WireModel):
    """The result of a search for faulty nodes."""

    suspects: tuple[str, ...] = Field(default=(), alias="suspectNodes")
    """The suspected nodes; once the search has ended, the confirmed ones."""


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
    """The run of one category."""

    metadata: Metadata
    status: WorkflowStatus = WorkflowStatus()


class BandwidthResult(WireModel):
    alg_bandwidth: str = Field(default="", alias="algBW")
    bus_bandwidth: str = Field(default="", alias="busBW")


class MeasurementSpec(WireModel):
    job: Reference = Field(default=Reference(), alias="jobRef")


class MeasurementStatus(WireModel):
    conditions: tuple[Condition, ...] = ()
    results: tuple[BandwidthResult, ...] = ()
    goodput: str = Field(default="", alias="result")
    tflops_per_gpu: str = Field(default="", alias="avgTFLOPSPerGPU")


class Measurement(WireModel):
    """The measurement of a job: of its bandwidth, or of its goodput."""

    metadata: Metadata
    spec: MeasurementSpec = MeasurementSpec()
    status: MeasurementStatus = MeasurementStatus()

    def get_value(self, metric: str) -> float | None:
        """Return the final value of a metric, or None without one.

        The value is the greatest of all message sizes, as the engine judges it
        (BandwidthMeasurement, 'How it works'). Values that are not decimal numbers are skipped.
        None until the measurement is complete, if it ended without a result, and for a bandwidth
        whose job has failed.
        """
        completed = find_true_condition(self.status.conditions, "Complete")
        if completed is None or completed.reason in _REASONS_WITHOUT_RESULT:
            return None
        # a job that failed may have measured some sizes before it failed
        if "Bandwidth" in metric and completed.reason != "JobSucceeded":
            return None
        reported_values = {
            "busBandwidthGBps": [result.bus_bandwidth for result in self.status.results],
            "algBandwidthGBps": [result.alg_bandwidth for result in self.status.results],
            "goodputRatio": [self.status.goodput],
            "avgTFLOPsPerGPU": [self.status.tflops_per_gpu],
        }.get(metric, [])
        return max(
            (
                value
                for reported in reported_values
                if (value := _parse_decimal(reported)) is not None
            ),
            default=None,
        )


class FailedNode(WireModel):
    """A node that a test names. The reason is a word of the engine."""

    name: Line = Field(min_length=1)
    reason: Line = ""
    message: str = ""


def find_true_condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """Return the condition with this type and with status True, or None."""
    return next(
        (
            condition
            for condition in conditions
            if condition.type == kind and condition.status == "True"
        ),
        None,
    )


def parse_succeeded_nodes(config_map: Mapping[str, Any]) -> list[str]:
    """Return the node names in the engine's ConfigMap of successful nodes.

    Raises ValueError for other content.
    """
    return [name for name in _unpack_text(config_map, SUCCEEDED_KEY).split(",") if name]


def parse_failed_nodes(config_map: Mapping[str, Any]) -> list[FailedNode]:
    """Return the entries in the engine's ConfigMap of failed nodes.

    Raises ValueError for other content.
    """
    nodes = _parse_json(_unpack_text(config_map, FAILED_KEY))
    if not isinstance(nodes, list):
        raise ValueError("the list of failed nodes is not a list")  # noqa: TRY004 - of the content
    return [FailedNode.model_validate(node) for node in nodes]


def parse_group_nodes(config_map: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the node names of each test group in the engine's ConfigMap of groups.

    Raises ValueError for other content.
    """
    groups = _parse_json(_unpack_text(config_map, GROUPS_KEY))
    if not isinstance(groups, dict) or not all(
        isinstance(members, list) for members in groups.values()
    ):
        raise ValueError("the groups are not lists of nodes")
    return {str(name): [str(node) for node in nodes] for name, nodes in groups.items()}


def _parse_json(json_text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError for other or too deeply nested text."""
    try:
        return json.loads(json_text)
    except RecursionError:
        raise ValueError("the data is nested too deeply") from None


def _unpack_text(config_map: Mapping[str, Any], key: str) -> str:
    """Return the text of a gzipped `binaryData` member of a ConfigMap.

    Raises ValueError if the member is missing, damaged or larger than `_MAX_UNPACKED_BYTES`.
    """
    data = config_map.get("binaryData")
    packed = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(packed, str):
        raise ValueError(f"{key} is missing")  # noqa: TRY004 - of the content
    try:
        # 16 selects the format of gzip
        reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        unpacked = reader.decompress(b64decode(packed, validate=True), _MAX_UNPACKED_BYTES)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"{key} is not valid compressed data") from error
    # the list is larger than its limit: refuse it instead of using a part
    if reader.unconsumed_tail:
        raise ValueError(f"{key} is larger than {_MAX_UNPACKED_BYTES} bytes")
    if not reader.eof or reader.unused_data:
        raise ValueError(f"{key} is cut off, or has more than one part")
    return unpacked.decode()


def _parse_decimal(decimal: str) -> float | None:
    """Return a decimal number such as `12.5`; None for other text and for infinity."""
    value = float(decimal) if _DECIMAL.fullmatch(decimal) else None
    # A long row of digits becomes infinity.
    return value if value is not None and value < float("inf") else None
