"""Emulate NVIDIA's Cluster Readiness Engine in a cluster: certifications, workflows, results.

`controllers` calls `run_engine` at every request. The API is that of the engine's reference
('Certification', 'Workflow', 'BandwidthMeasurement', 'GoodputMeasurement') and of its design
records 062 and 068, which say how nodes are listed. What is measured without any setting are the
numbers of its page 'Validation Results'.
"""

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from gpuform.providers.emulator.clock import format_timestamp
from gpuform.providers.emulator.kubernetes.kinds import (
    BANDWIDTH,
    CERTIFICATION,
    CONFIG_MAP,
    GOODPUT,
    NODE,
    POD,
    WORKFLOW,
    Kind,
    KubernetesSettings,
)
from gpuform.providers.emulator.kubernetes.nodes import is_cordoned
from gpuform.providers.emulator.kubernetes.objects import (
    ClusterObjects,
    Object,
    parse_timestamp,
)
from gpuform.providers.emulator.kubernetes.pods import is_done
from gpuform.providers.emulator.store import Store

_MESSAGE_SIZE_BYTES: Final = 17_179_869_184
_BANDWIDTHS: Final = {"nccl-all-reduce": (487.87, 260.20), "nccl-all-gather": (338.57, 361.14)}
_DEFAULT_BANDWIDTHS: Final = (79.11, 84.40)
_GOODPUT: Final = {"result": "0.90", "avgTFLOPSPerGPU": "539.8", "avgStepTimeSec": "2.85"}
# A threshold is an expression on `value`, of which only a comparison is emulated.
_THRESHOLD: Final = re.compile(r"value\s*(>=|<=|>|<)\s*(\d+(?:\.\d+)?)", re.ASCII)
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": lambda value, bound: value >= bound,
    "<=": lambda value, bound: value <= bound,
    ">": lambda value, bound: value > bound,
    "<": lambda value, bound: value < bound,
}
_METRICS: Final = {
    "busBandwidthGBps",
    "algBandwidthGBps",
    "goodputRatio",
    "avgTFLOPsPerGPU",
    "avgStepTimeSec",
}


def run_engine(store: Store, objects: ClusterObjects) -> None:
    """Advance each certification of the cluster to the objects' time: workflows and statuses.

    Does nothing in clusters without the engine, and for certifications that are being deleted.
    """
    certifications = objects.list_objects(CERTIFICATION)
    if not certifications:
        return
    settings = KubernetesSettings.load(store)
    if not settings.group:
        return
    for certification in certifications:
        if "deletionTimestamp" not in certification["metadata"]:
            _CertificationRun(objects, settings, certification).run()


class _CertificationRun:
    """The run of one certification: its categories one after the other."""

    def __init__(
        self, objects: ClusterObjects, settings: KubernetesSettings, certification: Object
    ) -> None:
        self._objects = objects
        self._settings = settings
        self._certification = certification
        self._namespace = certification["metadata"]["namespace"]
        self._name = certification["metadata"]["name"]

    def run(self) -> None:
        """Advance the categories in order, and store the certification's status.

        Does nothing for a certification that has ended. With the setting `network_problem` the
        certification fails before the next workflow that needs a network.
        """
        # An ended certification never changes again.
        if _find_final_condition(self._certification) is not None:
            return
        spec = self._certification["spec"]
        begun_at = parse_timestamp(self._certification["metadata"]["creationTimestamp"])
        statuses: list[Object] = []
        is_over = True
        for number, category in enumerate(spec["categories"]):
            if is_over and self._lacks_network(number, category):
                self._fail_without_workflow(statuses, begun_at)
                return
            options = {k: v for k, v in spec.items() if k not in {"target", "categories"}}
            options |= category.get("options") or {}
            workflow = self._advance_workflow(number, category, options) if is_over else None
            final_condition = _find_final_condition(workflow) if workflow is not None else None
            is_over = final_condition is not None
            if final_condition is not None:
                begun_at = parse_timestamp(final_condition["lastTransitionTime"])
            statuses.append(_build_category_status(category, workflow, final_condition))
        failed_count = sum(status["status"] == "Failed" for status in statuses)
        conditions = [_build_condition("InProgress", begun_at, holds=not is_over)]
        if is_over and failed_count:
            message = f"{failed_count} of {len(statuses)} categories failed"
            conditions.append(_build_condition("Failed", begun_at, message=message))
        elif is_over:
            conditions.append(_build_condition("Succeeded", begun_at))
        self._store_status(conditions, statuses)

    def _store_status(self, conditions: list[Object], categories: list[Object]) -> None:
        """Store the status of the certification."""
        status = {"conditions": conditions, "categoryStatuses": categories}
        changed = {**self._certification, "status": status}
        self._certification = self._objects.replace(CERTIFICATION, self._certification, changed)

    def _lacks_network(self, number: int, category: Object) -> bool:
        """Return whether the workflow of a category is still missing and cannot be created."""
        # Diagnostics run on each node alone, and attach no network.
        needs_network = category["domain"] in {"communication", "training"}
        if not (self._settings.network_problem and needs_network):
            return False
        return (
            self._objects.get(WORKFLOW, self._name_workflow(number, category), self._namespace)
            is None
        )

    def _fail_without_workflow(self, ended_statuses: list[Object], moment: float) -> None:
        """Store the certification as failed before the category after `ended_statuses` began.

        The remaining categories are listed as pending; if none has ended, none is listed.
        """
        pending_categories = self._certification["spec"]["categories"][len(ended_statuses) :]
        pending = [_build_category_status(category, None, None) for category in pending_categories]
        problem = self._settings.network_problem
        conditions = [
            _build_condition("InProgress", moment, holds=False),
            _build_condition("Failed", moment, reason="SecondaryNetworkDetection", message=problem),
        ]
        # The engine lists the categories once it has created the first workflow.
        self._store_status(conditions, [*ended_statuses, *pending] if ended_statuses else [])

    def _name_workflow(self, number: int, category: Object) -> str:
        """Return the name of the workflow of a category."""
        return f"{self._name}-{number}-{category['variant']}"

    def _advance_workflow(self, number: int, category: Object, options: Object) -> Object | None:
        """Return the workflow of one category, begun or finished if the time has come.

        None while other pods use the nodes' GPUs.
        """
        name = self._name_workflow(number, category)
        workflow = self._objects.get(WORKFLOW, name, self._namespace)
        if workflow is None:
            workflow = self._begin_workflow(name, options)
        if workflow is None or _find_final_condition(workflow) is not None:
            return workflow
        start = parse_timestamp(workflow["status"]["conditions"][0]["lastTransitionTime"])
        # Still running: results come all at once at the end.
        if self._objects.now < start + self._settings.seconds:
            return workflow
        return self._finish_workflow(workflow, category, options, start + self._settings.seconds)

    def _begin_workflow(self, name: str, options: Object) -> Object | None:
        """Store and return the workflow of a category, with a config map of the nodes of each job.

        Cordoned nodes are left out. None while pods use the other nodes' GPUs.
        """
        targets, excluded = self._choose_nodes()
        busy = {
            pod["spec"].get("nodeName")
            for pod in self._objects.list_objects(POD)
            if not is_done(pod) and _has_gpus(pod)
        }
        if busy & {*targets}:
            return None
        start = self._objects.now
        groups = _build_groups(targets, options)
        status: Object = {
            "conditions": [_build_condition("InProgress", start)],
            "orchestration": {
                "totalNodes": len(targets),
                "totalGroups": len(groups),
                "detectedPlatform": "togetherai",
                "excludedNodes": excluded,
                "exclusionReason": "cordoned" if excluded else "",
                "groups": [
                    {
                        "name": group,
                        "phase": "Running",
                        "jobRef": {"name": f"{name}-{group}"},
                        "startTime": format_timestamp(start),
                    }
                    for group in groups
                ],
            },
        }
        workflow = self._add_owned(
            WORKFLOW, name, self._certification, {"spec": {}, "status": status}
        )
        short_uid = workflow["metadata"]["uid"][:8]
        packed_groups = {"group-nodes.json.gz": _compress(json.dumps(groups))}
        self._add_owned(
            CONFIG_MAP, f"group-nodes-{short_uid}", workflow, {"binaryData": packed_groups}
        )
        reference = {"kind": "ConfigMap", "name": f"group-nodes-{short_uid}"}
        # The config map is named after the workflow's uid, which only the stored workflow has.
        changed = {**workflow, "status": {**status, "groupNodesRef": reference}}
        return self._objects.replace(WORKFLOW, workflow, changed)

    def _choose_nodes(self) -> tuple[list[str], list[str]]:
        """Return the names of the target nodes to test, and of the cordoned ones to leave out."""
        target = self._certification["spec"]["target"]
        names, labels = target.get("nodeNames"), target.get("nodeSelector") or {}
        targeted_nodes = [
            node
            for node in self._objects.list_objects(NODE)
            if (
                node["metadata"]["name"] in names
                if names
                else labels.items() <= (node["metadata"].get("labels") or {}).items()
            )
        ]
        tested_names, cordoned_names = (
            [node["metadata"]["name"] for node in targeted_nodes if is_cordoned(node) is cordoned]
            for cordoned in (False, True)
        )
        return tested_names, cordoned_names

    def _finish_workflow(
        self, workflow: Object, category: Object, options: Object, end: float
    ) -> Object:
        """Store and return the workflow as ended at `end`, with results of jobs and nodes.

        Measurements and config maps with the nodes that passed and failed are added. A workflow
        fails if a node failed or no node matched the target.
        """
        orchestration = workflow["status"]["orchestration"]
        reference = workflow["status"]["groupNodesRef"]["name"]
        config_map = self._objects.get(CONFIG_MAP, reference, self._namespace) or {}
        groups: dict[str, list[str]] = json.loads(
            gzip.decompress(base64.b64decode(config_map["binaryData"]["group-nodes.json.gz"]))
        )
        is_searching = options.get("testScale") == "diagnose"
        failed: list[dict[str, str]] = []
        finished_groups = []
        for group in orchestration["groups"]:
            nodes = groups.get(group["name"], [])
            # A diagnosing run judges each node alone; any other blames the whole group.
            parts = [[node] for node in nodes] if is_searching else [nodes]
            group_failures = [
                failure
                for part in parts
                for failure in self._find_failures(part, category, options)
            ]
            self._record_measurement(workflow, group["jobRef"]["name"], category, nodes, end)
            failed += group_failures
            phase = "Failed" if group_failures or not nodes else "Succeeded"
            finished_groups.append(
                {**group, "phase": phase, "completionTime": format_timestamp(end)}
            )
        is_failed = bool(failed) or not orchestration["totalNodes"]
        message = f"{sum(g['phase'] == 'Failed' for g in finished_groups)} groups failed"
        if not orchestration["totalNodes"]:
            message = "no node matches the target"
        conditions = [
            _build_condition("InProgress", end, holds=False),
            _build_condition(
                "Failed" if is_failed else "Succeeded", end, message=message * is_failed
            ),
        ]
        orchestration = {**orchestration, "groups": finished_groups}
        if is_searching:
            suspects = sorted({failure_entry["name"] for failure_entry in failed})
            orchestration["diagnose"] = {"stage": "complete", "round": 1, "suspectNodes": suspects}
        nodes_of_failed_groups = {
            node
            for group in finished_groups
            if group["phase"] == "Failed" and not is_searching
            for node in groups.get(group["name"], [])
        }
        all_nodes = {node for group_nodes in groups.values() for node in group_nodes}
        failed_nodes = nodes_of_failed_groups | {failure_entry["name"] for failure_entry in failed}
        status = {
            **workflow["status"],
            **self._store_node_lists(workflow, sorted(all_nodes - failed_nodes), failed),
            "conditions": conditions,
            "orchestration": orchestration,
        }
        return self._objects.replace(WORKFLOW, workflow, {**workflow, "status": status})

    def _store_node_lists(
        self, workflow: Object, passed: Sequence[str], failed: Sequence[Mapping[str, str]]
    ) -> Object:
        """Store config maps with the nodes that passed and failed; return references to them.

        An empty list has no config map.
        """
        short_uid = workflow["metadata"]["uid"][:8]
        references = {}
        for outcome, key, content in (
            ("succeeded", "succeeded-nodes.csv.gz", ",".join(passed)),
            ("failed", "failed-nodes.json.gz", json.dumps(failed)),
        ):
            if content not in {"", "[]"}:
                name = f"{outcome}-nodes-{short_uid}"
                self._add_owned(
                    CONFIG_MAP, name, workflow, {"binaryData": {key: _compress(content)}}
                )
                references[f"{outcome}NodesRef"] = {"kind": "ConfigMap", "name": name}
        return references

    def _find_failures(
        self, nodes: Sequence[str], category: Object, options: Object
    ) -> Iterator[dict[str, str]]:
        """Yield the failed nodes of one job, each with a reason.

        Only nodes broken by a test fail where there are any. Else all nodes fail if a threshold is
        missed.
        """
        broken = [node for node in nodes if node in self._settings.broken_nodes]
        for node in broken:
            message = self._settings.broken_nodes[node]
            yield {"name": node, "reason": "HardwareFailureDetected", "message": message}
        # A job with a broken node fails before it measures anything.
        if broken:
            return
        violation = _find_violation(
            options.get("thresholds") or {}, self._compute_figures(category, nodes)
        )
        for node in nodes if violation else ():
            yield {"name": node, "reason": "ThresholdViolation", "message": violation}

    def _compute_figures(self, category: Object, nodes: Sequence[str]) -> dict[str, float]:
        """Return the values by metric that a job on `nodes` measures; {} for a category without."""
        if category["domain"] == "training":
            names = ("goodputRatio", "avgTFLOPsPerGPU", "avgStepTimeSec")
            return dict(zip(names, map(float, _GOODPUT.values()), strict=True))
        if category["domain"] != "communication":
            return {}
        usual_bus_bandwidth, usual_algorithm_bandwidth = _BANDWIDTHS.get(
            category["variant"], _DEFAULT_BANDWIDTHS
        )
        slowest = min(
            (self._settings.slow_nodes.get(node, usual_bus_bandwidth) for node in nodes),
            default=usual_bus_bandwidth,
        )
        bus_bandwidth = min(usual_bus_bandwidth, slowest)
        return {
            "busBandwidthGBps": bus_bandwidth,
            "algBandwidthGBps": round(
                usual_algorithm_bandwidth * bus_bandwidth / usual_bus_bandwidth, 2
            ),
        }

    def _record_measurement(
        self, workflow: Object, job: str, category: Object, nodes: Sequence[str], end: float
    ) -> None:
        """Add a measurement object of a finished job.

        None is added for a job on a node broken by a test, and for a category that measures
        nothing.
        """
        figures = self._compute_figures(category, nodes)
        # No figures without a finished job.
        if not figures or any(node in self._settings.broken_nodes for node in nodes):
            return
        conditions = [_build_condition("Complete", end, reason="JobSucceeded")]
        status: Object = {"conditions": conditions, "completionTime": format_timestamp(end)}
        if category["domain"] == "training":
            kind, suffix, status = GOODPUT, "goodput", {**status, **_GOODPUT}
        else:
            kind, suffix = BANDWIDTH, "bandwidth"
            result = {
                "sizeBytes": _MESSAGE_SIZE_BYTES,
                "algBW": f"{figures['algBandwidthGBps']:.2f}",
                "busBW": f"{figures['busBandwidthGBps']:.2f}",
                "samples": 65,
            }
            status["results"] = [result]
        spec = {"jobRef": {"kind": "Job", "name": job}, "logProfileRef": "nccl"}
        self._add_owned(kind, f"{job}-{suffix}", workflow, {"spec": spec, "status": status})

    def _add_owned(self, kind: Kind, name: str, owner: Object, body: Object) -> Object:
        """Add an object owned by `owner`, or return the existing object of the name."""
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        metadata = {"name": name, "namespace": self._namespace, "ownerReferences": [reference]}
        existing = self._objects.get(kind, name, self._namespace)
        return existing or self._objects.add(kind, {**body, "metadata": metadata})


def _build_groups(nodes: Sequence[str], options: Object) -> dict[str, list[str]]:
    """Return the names of the nodes of each job by group name (`group-0`).

    A job has one node, `nodesPerJob` nodes or all, as the options say.
    """
    size = len(nodes) or 1
    if options.get("testScale") == "intra-node":
        # Each node is tested alone.
        size = 1
    elif options.get("nodesPerJob"):
        size = min(int(options["nodesPerJob"]), size)
    parts = [list(nodes[start : start + size]) for start in range(0, len(nodes), size)]
    return {f"group-{number}": part for number, part in enumerate(parts)}


def _find_violation(thresholds: Mapping[str, str], figures: Mapping[str, float]) -> str:
    """Return the engine's words for the first missed threshold, or "" if all are met.

    `thresholds` are expressions such as `value >= 300`, by metric. Unknown metrics and malformed
    expressions count as missed. A threshold without a measured value is met.
    """
    if unknown := sorted({*thresholds} - _METRICS):
        return f'Unknown threshold key "{unknown[0]}"'
    for key, rule in sorted(thresholds.items()):
        match = _THRESHOLD.fullmatch(rule.strip())
        if match is None:
            return f'Threshold "{key}": compile threshold expression "{rule}"'
        value = figures.get(key)
        if value is not None and not _COMPARISONS[match[1]](value, float(match[2])):
            return f'Threshold "{key}" violated: measured {value:.4f}, expression: {rule}'
    return ""


def _build_category_status(
    category: Object, workflow: Object | None, final_condition: Object | None
) -> Object:
    """Return the status of one category: Pending, InProgress or the workflow's final condition.

    Without a `workflow` the status is Pending, without a `final_condition` InProgress.
    """
    status: Object = {"domain": category["domain"], "variant": category["variant"]}
    if workflow is None:
        return {**status, "status": "Pending"}
    metadata = workflow["metadata"]
    status["status"] = str(final_condition["type"]) if final_condition is not None else "InProgress"
    status["workflowRef"] = {"name": metadata["name"], "namespace": metadata["namespace"]}
    for name in ("succeededNodesRef", "failedNodesRef"):
        if name in workflow["status"]:
            status[name] = workflow["status"][name]
    return status


def _find_final_condition(content: Object) -> Object | None:
    """Return the condition with which a certification or workflow has ended, or None."""
    for condition in (content.get("status") or {}).get("conditions") or ():
        if condition["type"] in {"Succeeded", "Failed"} and condition["status"] == "True":
            return dict(condition)
    return None


def _build_condition(
    kind: str, moment: float, *, holds: bool = True, reason: str = "", message: str = ""
) -> Object:
    """Return a condition of type `kind`, True or False, since `moment` (unix seconds)."""
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason or kind,
        "message": message,
        "lastTransitionTime": format_timestamp(moment),
    }


def _has_gpus(pod: Object) -> bool:
    """Return whether a container of the pod has a limit of NVIDIA GPUs above zero."""
    limits = (
        (container.get("resources") or {}).get("limits") or {}
        for container in pod["spec"]["containers"]
    )
    return any(int(container.get("nvidia.com/gpu") or 0) for container in limits)


def _compress(content: str) -> str:
    """Return a text compressed by gzip and in base64, as `binaryData` of a config map."""
    # Without a time of its own the same content gives the same bytes.
    return base64.b64encode(gzip.compress(content.encode(), mtime=0)).decode()
