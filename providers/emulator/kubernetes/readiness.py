"""NVIDIA's Cluster Readiness Engine in an emulated cluster: certifications, workflows, results.

Its API is that of the engine's reference ('Certification', 'Workflow', 'BandwidthMeasurement',
'GoodputMeasurement') and of its design records 062 and 068, which say how nodes are listed. What is
measured without any setting are the numbers of its page 'Validation Results'.
"""

import base64
import gzip
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import ClassVar, Final, Literal

from pydantic import Field

from gpuform.providers.emulator.kubernetes.kinds import (
    BANDWIDTH,
    CERTIFICATION,
    CONFIG_MAP,
    ENGINE_GROUP,
    GOODPUT,
    NODE,
    POD,
    WORKFLOW,
    Kind,
)
from gpuform.providers.emulator.kubernetes.nodes import is_cordoned
from gpuform.providers.emulator.kubernetes.objects import Object, Objects, timestamp, unix_time
from gpuform.providers.emulator.kubernetes.pods import is_done
from gpuform.providers.emulator.routing import PlatformSettings
from gpuform.providers.emulator.store import Store

ENGINE_GROUPS: Final = (ENGINE_GROUP, "cre.nvidia.com")
_SIZE: Final = 17_179_869_184
_SHARE: Final = {"nccl-all-reduce": (487.87, 260.20), "nccl-all-gather": (338.57, 361.14)}
_OTHERS: Final = (79.11, 84.40)
_GOODPUT: Final = {"result": "0.90", "avgTFLOPSPerGPU": "539.8", "avgStepTimeSec": "2.85"}
_RULE: Final = re.compile(r"value\s*(>=|<=|>|<)\s*(\d+(?:\.\d+)?)", re.ASCII)
_HOLDS: Final[Mapping[str, Callable[[float, float], bool]]] = {
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


class EngineSettings(PlatformSettings):
    """The engine of all emulated clusters."""

    kind: ClassVar[str] = "kubernetes/engine"

    group: Literal["nvcre.nvidia.com", "cre.nvidia.com", ""] = "nvcre.nvidia.com"
    """Its API group; empty: it is not installed."""
    seconds: float = Field(default=600, ge=0)
    """How long a category takes."""
    slow_nodes: dict[str, float] = Field(default_factory=dict)
    """Node -> GB/s of bus bandwidth that a job with it reaches at most."""
    broken_nodes: dict[str, str] = Field(default_factory=dict)
    """Node -> the words with which each job on it fails."""


def shown(content: Object, group: str) -> Object:
    """An object or a list as a cluster with this group shows it."""
    version = str(content.get("apiVersion", ""))
    if group == ENGINE_GROUP or not version.startswith(f"{ENGINE_GROUP}/"):
        return content
    told = {**content, "apiVersion": version.replace(ENGINE_GROUP, group)}
    if isinstance(items := told.get("items"), list):
        told["items"] = [shown(each, group) for each in items]
    return told


def run_engine(store: Store, objects: Objects) -> None:
    """Brings every certification to the time of the clock."""
    certifications = objects.of(CERTIFICATION)
    if not certifications:
        return
    settings = EngineSettings.load(store)
    if not settings.group:
        return
    for certification in certifications:
        if "deletionTimestamp" not in certification["metadata"]:
            _Certifying(objects, settings, certification).run()


class _Certifying:
    """One certification: its categories one after the other."""

    def __init__(self, objects: Objects, settings: EngineSettings, certification: Object) -> None:
        self._objects = objects
        self._settings = settings
        self._certification = certification
        self._namespace = certification["metadata"]["namespace"]
        self._name = certification["metadata"]["name"]

    def run(self) -> None:
        if _ended(self._certification) is not None:
            return
        spec = self._certification["spec"]
        began = unix_time(self._certification["metadata"]["creationTimestamp"])
        statuses, is_over = [], True
        for number, category in enumerate(spec["categories"]):
            options = {**_options(spec), **(category.get("options") or {})}
            workflow = self._workflow(number, category, options) if is_over else None
            done = _ended(workflow) if workflow is not None else None
            is_over = done is not None
            began = unix_time(done["lastTransitionTime"]) if done is not None else began
            statuses.append(_category_status(category, workflow, done))
        failed = [each for each in statuses if each["status"] == "Failed"]
        conditions = [_condition("InProgress", began, holds=not is_over)]
        if is_over:
            told = f"{len(failed)} of {len(statuses)} categories failed" if failed else ""
            conditions.append(_condition("Failed" if failed else "Succeeded", began, message=told))
        status = {"conditions": conditions, "categoryStatuses": statuses}
        changed = {**self._certification, "status": status}
        self._certification = self._objects.replace(CERTIFICATION, self._certification, changed)

    def _workflow(self, number: int, category: Object, options: Object) -> Object | None:
        name = f"{self._name}-{number}-{category['variant']}"
        found = self._objects.get(WORKFLOW, name, self._namespace)
        if found is None:
            found = self._begun(name, options)
        if found is None or _ended(found) is not None:
            return found
        start = unix_time(found["status"]["conditions"][0]["lastTransitionTime"])
        if self._objects.now < start + self._settings.seconds:
            return found
        return self._finished(found, category, options, start + self._settings.seconds)

    def _begun(self, name: str, options: Object) -> Object | None:
        """The workflow with its groups, once no pod has the GPUs of its nodes."""
        targets, excluded = self._targets()
        busy = {
            pod["spec"].get("nodeName")
            for pod in self._objects.of(POD)
            if not is_done(pod) and _has_gpus(pod)
        }
        if busy & {*targets}:
            return None
        start = self._objects.now
        groups = _grouped(targets, options)
        status: Object = {
            "conditions": [_condition("InProgress", start)],
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
                        "startTime": timestamp(start),
                    }
                    for group in groups
                ],
            },
        }
        workflow = self._add(WORKFLOW, name, self._certification, {"spec": {}, "status": status})
        short = workflow["metadata"]["uid"][:8]
        kept = {"group-nodes.json.gz": _packed(json.dumps(groups))}
        self._add(CONFIG_MAP, f"group-nodes-{short}", workflow, {"binaryData": kept})
        reference = {"kind": "ConfigMap", "name": f"group-nodes-{short}"}
        changed = {**workflow, "status": {**status, "groupNodesRef": reference}}
        return self._objects.replace(WORKFLOW, workflow, changed)

    def _targets(self) -> tuple[list[str], list[str]]:
        """The nodes that are tested, and those that are left out: cordoned ones."""
        target = self._certification["spec"]["target"]
        names, labels = target.get("nodeNames"), target.get("nodeSelector") or {}
        chosen = [
            node
            for node in self._objects.of(NODE)
            if (
                node["metadata"]["name"] in names
                if names
                else labels.items() <= (node["metadata"].get("labels") or {}).items()
            )
        ]
        kept = [node["metadata"]["name"] for node in chosen if not is_cordoned(node)]
        return kept, [node["metadata"]["name"] for node in chosen if is_cordoned(node)]

    def _finished(self, workflow: Object, category: Object, options: Object, end: float) -> Object:
        orchestration = workflow["status"]["orchestration"]
        reference = workflow["status"]["groupNodesRef"]["name"]
        kept = self._objects.get(CONFIG_MAP, reference, self._namespace) or {}
        groups: dict[str, list[str]] = json.loads(
            gzip.decompress(base64.b64decode(kept["binaryData"]["group-nodes.json.gz"]))
        )
        is_searching = options.get("testScale") == "diagnose"
        failed: list[dict[str, str]] = []
        shown_groups = []
        for group in orchestration["groups"]:
            nodes = groups.get(group["name"], [])
            parts = [[node] for node in nodes] if is_searching else [nodes]
            mine = [each for part in parts for each in self._failed(part, category, options)]
            self._measure(workflow, group["jobRef"]["name"], category, nodes, end)
            failed += mine
            phase = "Failed" if mine or not nodes else "Succeeded"
            shown_groups.append({**group, "phase": phase, "completionTime": timestamp(end)})
        is_failed = bool(failed) or not orchestration["totalNodes"]
        told = f"{sum(g['phase'] == 'Failed' for g in shown_groups)} groups failed"
        if not orchestration["totalNodes"]:
            told = "no node matches the target"
        conditions = [
            _condition("InProgress", end, holds=False),
            _condition("Failed" if is_failed else "Succeeded", end, message=told * is_failed),
        ]
        orchestration = {**orchestration, "groups": shown_groups}
        if is_searching:
            suspects = sorted({each["name"] for each in failed})
            orchestration["diagnose"] = {"stage": "complete", "round": 1, "suspectNodes": suspects}
        named = {each["name"] for each in failed}
        in_failed = {
            node
            for group in shown_groups
            if group["phase"] == "Failed" and not is_searching
            for node in groups.get(group["name"], [])
        }
        passed = sorted({node for each in groups.values() for node in each} - named - in_failed)
        short = workflow["metadata"]["uid"][:8]
        references = {}
        for word, key, text in (
            ("succeeded", "succeeded-nodes.csv.gz", ",".join(passed)),
            ("failed", "failed-nodes.json.gz", json.dumps(failed)),
        ):
            if text not in {"", "[]"}:
                name = f"{word}-nodes-{short}"
                self._add(CONFIG_MAP, name, workflow, {"binaryData": {key: _packed(text)}})
                references[f"{word}NodesRef"] = {"kind": "ConfigMap", "name": name}
        status = {
            **workflow["status"],
            **references,
            "conditions": conditions,
            "orchestration": orchestration,
        }
        return self._objects.replace(WORKFLOW, workflow, {**workflow, "status": status})

    def _failed(
        self, nodes: Sequence[str], category: Object, options: Object
    ) -> Iterator[dict[str, str]]:
        """The nodes that one job names; a missed threshold names all of its nodes."""
        broken = [node for node in nodes if node in self._settings.broken_nodes]
        for node in broken:
            message = self._settings.broken_nodes[node]
            yield {"name": node, "reason": "HardwareFailureDetected", "message": message}
        if broken:
            return
        told = _violation(options.get("thresholds") or {}, self._figures(category, nodes))
        for node in nodes if told else ():
            yield {"name": node, "reason": "ThresholdViolation", "message": told}

    def _figures(self, category: Object, nodes: Sequence[str]) -> dict[str, float]:
        if category["domain"] == "training":
            names = ("goodputRatio", "avgTFLOPsPerGPU", "avgStepTimeSec")
            return dict(zip(names, map(float, _GOODPUT.values()), strict=True))
        if category["domain"] != "communication":
            return {}
        bus, alg = _SHARE.get(category["variant"], _OTHERS)
        slowest = min((self._settings.slow_nodes.get(node, bus) for node in nodes), default=bus)
        reached = min(bus, slowest)
        return {"busBandwidthGBps": reached, "algBandwidthGBps": round(alg * reached / bus, 2)}

    def _measure(
        self, workflow: Object, job: str, category: Object, nodes: Sequence[str], end: float
    ) -> None:
        figures = self._figures(category, nodes)
        if not figures or any(node in self._settings.broken_nodes for node in nodes):
            return
        done = [_condition("Complete", end, reason="JobSucceeded")]
        status: Object = {"conditions": done, "completionTime": timestamp(end)}
        if category["domain"] == "training":
            kind, suffix, status = GOODPUT, "goodput", {**status, **_GOODPUT}
        else:
            kind, suffix = BANDWIDTH, "bandwidth"
            result = {
                "sizeBytes": _SIZE,
                "algBW": f"{figures['algBandwidthGBps']:.2f}",
                "busBW": f"{figures['busBandwidthGBps']:.2f}",
                "samples": 65,
            }
            status["results"] = [result]
        spec = {"jobRef": {"kind": "Job", "name": job}, "logProfileRef": "nccl"}
        self._add(kind, f"{job}-{suffix}", workflow, {"spec": spec, "status": status})

    def _add(self, kind: Kind, name: str, owner: Object, body: Object) -> Object:
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        metadata = {"name": name, "namespace": self._namespace, "ownerReferences": [reference]}
        found = self._objects.get(kind, name, self._namespace)
        return found or self._objects.add(kind, {**body, "metadata": metadata})


def _options(spec: Object) -> Object:
    return {name: value for name, value in spec.items() if name not in {"target", "categories"}}


def _grouped(nodes: Sequence[str], options: Object) -> dict[str, list[str]]:
    size = len(nodes) or 1
    if options.get("testScale") == "intra-node":
        size = 1
    elif options.get("nodesPerJob"):
        size = min(int(options["nodesPerJob"]), size)
    parts = [list(nodes[at : at + size]) for at in range(0, len(nodes), size)]
    return {f"group-{number}": part for number, part in enumerate(parts)}


def _violation(thresholds: Mapping[str, str], figures: Mapping[str, float]) -> str:
    """The engine's words for the first threshold that is missed; empty when all are kept."""
    if unknown := sorted({*thresholds} - _METRICS):
        return f'Unknown threshold key "{unknown[0]}"'
    for key, rule in sorted(thresholds.items()):
        read = _RULE.fullmatch(rule.strip())
        if read is None:
            return f'Threshold "{key}": compile threshold expression "{rule}"'
        value = figures.get(key)
        if value is not None and not _HOLDS[read[1]](value, float(read[2])):
            return f'Threshold "{key}" violated: measured {value:.4f}, expression: {rule}'
    return ""


def _category_status(category: Object, workflow: Object | None, done: Object | None) -> Object:
    status: Object = {"domain": category["domain"], "variant": category["variant"]}
    if workflow is None:
        return {**status, "status": "Pending"}
    metadata = workflow["metadata"]
    status["status"] = str(done["type"]) if done is not None else "InProgress"
    status["workflowRef"] = {"name": metadata["name"], "namespace": metadata["namespace"]}
    for name in ("succeededNodesRef", "failedNodesRef"):
        if name in workflow["status"]:
            status[name] = workflow["status"][name]
    return status


def _ended(each: Object) -> Object | None:
    for condition in (each.get("status") or {}).get("conditions") or ():
        if condition["type"] in {"Succeeded", "Failed"} and condition["status"] == "True":
            return dict(condition)
    return None


def _condition(
    kind: str, moment: float, *, holds: bool = True, reason: str = "", message: str = ""
) -> Object:
    return {
        "type": kind,
        "status": "True" if holds else "False",
        "reason": reason or kind,
        "message": message,
        "lastTransitionTime": timestamp(moment),
    }


def _has_gpus(pod: Object) -> bool:
    limits = (
        (each.get("resources") or {}).get("limits") or {} for each in pod["spec"]["containers"]
    )
    return any(int(each.get("nvidia.com/gpu") or 0) for each in limits)


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
