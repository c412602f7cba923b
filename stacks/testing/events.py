"""Apply a case's events to its emulator: before the run, at a time of its clock, or on a request.

`case_run` creates `CaseEvents` in the process of the run, in which the emulator runs too.
"""

import json
import os
import re
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from flask import Response, request

from gpuform.providers.emulator.routing import TRUSTED
from gpuform.providers.emulator.server import Server
from gpuform.providers.platform import platforms
from gpuform.schemas.cases_file import (
    EVENT_KINDS,
    ControlInputs,
    EventInputs,
    JobInputs,
    NodeInputs,
    OutsideRequestInputs,
    ProposalInputs,
    StatusInputs,
)
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import property_paths

_OBJECT_NAME: Final = re.compile(r"\{([^{}]+)\}")
_WRITE_METHODS: Final = ("POST", "PUT", "PATCH")
_CONTROL_PATH: Final = "/_emulator"


class EventError(EngineError):
    """An event cannot happen as the test file describes it."""

    help_page = "guides/test-a-stack"


@dataclass(slots=True)
class CaseEvents:
    """The events of one case's run; create them before the first request to the server.

    `failed` has the reason for each event that could not happen, by the event's number. What has
    happened is written to `record_file` before a `kill`, for the process that inspects the killed
    run.
    """

    server: Server
    events: Sequence[EventInputs]
    record_file: Path
    failed: dict[int, str] = field(default_factory=dict)
    _waiting: dict[int, EventInputs] = field(default_factory=dict)
    _happened: dict[int, int | None] = field(default_factory=dict)
    """By event number: the number of the fault's rule in the emulator, or None for other events."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.server.app.after_request(self._apply_matching_events)

    @classmethod
    def load_after_kill(
        cls, server: Server, events: Sequence[EventInputs], record_file: Path
    ) -> "CaseEvents":
        """Return the events of a killed run, with the effects recorded before the kill."""
        record = json.loads(record_file.read_text(encoding="utf-8"))
        failed, happened = dict(record["failed"]), dict(record["happened"])
        return cls(server, events, record_file, failed=failed, _happened=happened)

    def start(self) -> None:
        """Apply the events before the run, and schedule the others."""
        self._waiting = dict(enumerate(self.events))
        self._write_record()
        started_at = self.server.clock.now()
        for number, event in enumerate(self.events):
            if event.at is not None:
                timestamp = started_at + property_paths.parse_duration(event.at)
                self.server.clock.schedule(timestamp, partial(self._apply_once, number))
            elif event.on is None:
                self._apply_once(number)

    @property
    def pending(self) -> list[int]:
        """Return the numbers of the events never applied, without failed events."""
        return [number for number in range(len(self.events)) if number not in self._happened]

    @property
    def fault_mismatches(self) -> dict[int, str]:
        """Return a message by event number for each fault with the wrong requests.

        A fault must meet a request, or none if its event has `met: false`.
        """
        rules = {event: rule for event, rule in self._happened.items() if rule is not None}
        if not rules:
            return {}
        applied = self._send_request("GET", f"{_CONTROL_PATH}/faults/applied", None)
        is_met_by_event = {event: str(rule) in applied for event, rule in sorted(rules.items())}
        return {
            number: "the fault met a request" if is_met else "the fault met no request"
            for number, is_met in is_met_by_event.items()
            if is_met != (self.events[number].met is not False)
        }

    def _apply_matching_events(self, response: Response) -> Response:
        """Apply the events waiting for the current request, and return the response unchanged.

        Flask calls this method after the handler, so the effect of the request is stored already.
        """
        # Requests of the events themselves and of the emulator's control count for no event.
        if not request.environ.get(TRUSTED) and not request.path.startswith(_CONTROL_PATH):
            for number, event in list(self._waiting.items()):
                if event.on is not None and _is_match(event.on):
                    self._apply_once(number)
        return response

    def _apply_once(self, number: int) -> None:
        """Apply the event with the number `number`, unless applied before.

        An event that cannot happen is added to `failed`; no EventError is raised.
        """
        with self._lock:
            # Two requests at the same time may match the event; it happens once.
            event = self._waiting.pop(number, None)
        if event is None:
            return
        self._happened[number] = None
        if event.kill:
            # Nothing of this process can be written after the kill.
            self._write_record()
        try:
            answer = self._apply(event)
        except EventError as error:
            self.failed[number] = error.message
        else:
            if event.fault is not None:
                self._happened[number] = answer["number"]

    def _write_record(self) -> None:
        happened, failed = list(self._happened.items()), list(self.failed.items())
        content = {"happened": happened, "failed": failed}
        self.record_file.write_text(json.dumps(content), encoding="utf-8")

    def _apply(self, event: EventInputs) -> Any:
        """Apply the event by its kind; return the new rule for a `fault`, else None.

        Raises EventError if the event cannot happen.
        """
        kind = next(name for name in EVENT_KINDS if getattr(event, name) is not None)
        return getattr(self, f"_apply_{kind}")(getattr(event, kind))

    def _apply_kill(self, _is_kill: bool) -> None:
        """Kill this process, which runs the stack and the emulator; the call does not return."""
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    def _apply_stock_out(self, platform: str) -> None:
        """Make the emulator answer each later request for GPUs of the platform as out of capacity.

        Raises EventError for an unknown platform.
        """
        _require_platform(platform)
        # Only writes: reads of existing objects need no capacity.
        for method in _WRITE_METHODS:
            rule = {"platform": platform, "method": method, "capacity": True, "count": None}
            self._apply_fault(rule)

    def _apply_status(self, inputs: StatusInputs) -> None:
        """Show `inputs.status` as the status of an object in every later answer.

        Raises EventError unless exactly one object has the name.
        """
        object_id = re.escape(self._get_object_id(inputs.object))
        self._apply_fault(
            {"path": f"/{object_id}$", "status_override": inputs.status, "count": None}
        )

    def _apply_credit_gone(self, platform: str) -> None:
        """Exhaust the prepaid credit on the platform.

        Raises EventError for an unknown platform, or one without prepaid credit.
        """
        _require_platform(platform)
        control = f"{_CONTROL_PATH}/{platform}/credit"
        # Not every platform has prepaid credit.
        if not self._has_control(control):
            raise EventError(f"platform {platform} has no credit that can run out")
        self._send_request("POST", control, {"exhausted": True})

    def _apply_node_not_ready(self, inputs: NodeInputs) -> None:
        """Make a node of a Kubernetes cluster not ready.

        Raises EventError if the cluster or the node does not exist.
        """
        cluster = self._get_object_id(inputs.cluster)
        path = f"{_CONTROL_PATH}/kubernetes/{cluster}/nodes/{inputs.node}"
        self._send_request("POST", path, {"ready": False})

    def _apply_proposal(self, inputs: ProposalInputs) -> None:
        """Create Together's proposal to repair a node; unset fields are not sent.

        Raises EventError if the emulator refuses the proposal.
        """
        cluster = self._get_object_id(inputs.cluster)
        fields = {"cluster_id": cluster, "instance_name": inputs.node}
        fields |= {"mode": inputs.mode or "", "reason": inputs.reason or ""}
        body = {name: value for name, value in fields.items() if value}
        self._send_request("POST", f"{_CONTROL_PATH}/together/remediations", body)

    def _apply_job(self, inputs: JobInputs) -> None:
        """Start a pod, or a Slurm job on a cluster with Slurm.

        Raises EventError if it does not run at once.
        """
        cluster = self._get_object_id(inputs.cluster)
        duration_s = (
            None if inputs.runs_for is None else property_paths.parse_duration(inputs.runs_for)
        )
        body = {"name": inputs.name, "gpus": inputs.gpus or 0, "runs_for": duration_s}
        slurm = f"{_CONTROL_PATH}/slurm/{cluster}"
        if self._is_found(f"{slurm}/jobs"):
            nodes = [inputs.node] if inputs.node else []
            job = self._send_request("POST", f"{slurm}/jobs", {**body, "nodes": nodes})
            is_running = job["state"] == "RUNNING"
            show_node = {"command": ["scontrol", "show", "node", *nodes]}
            is_known_node = (
                is_running or self._send_request("POST", f"{slurm}/run", show_node)["code"] == 0
            )
        else:
            pods = f"{_CONTROL_PATH}/kubernetes/{cluster}/pods"
            job = self._send_request("POST", pods, {**body, "node": inputs.node})
            is_running = job["status"]["phase"] == "Running"
            node = f"/kubernetes/{cluster}/api/v1/nodes/{inputs.node}"
            is_known_node = not inputs.node or self._is_found(node)
        if not is_known_node:
            raise EventError(f"node {inputs.node} not found")
        # A job that only waits would not test what the case describes.
        if not is_running:
            reason = f"{inputs.node} has no room" if inputs.node else "no node has room"
            raise EventError(f"job {inputs.name} does not start: {reason} for it")

    def _apply_fault(self, rule: Mapping[str, Any]) -> Any:
        """Add a fault rule to the emulator, and return it with its number.

        Raises EventError if the emulator refuses the rule.
        """
        return self._send_request("POST", f"{_CONTROL_PATH}/faults", rule)

    def _apply_control(self, inputs: ControlInputs) -> None:
        """Send a POST request to a control of the emulator, with object names replaced by ids.

        Raises EventError if the emulator has no such control or refuses the request.
        """
        path = f"{_CONTROL_PATH}/{self._fill_in_ids(inputs.path)}"
        if not self._has_control(path):
            raise EventError(f"unknown control {inputs.path} of the emulator")
        self._send_request("POST", path, inputs.body or {})

    def _has_control(self, control: str) -> bool:
        return self.server.app.url_map.bind("").test(control, "POST")

    def _apply_request(self, inputs: OutsideRequestInputs) -> None:
        """Send the request of somebody outside of gpuform to the emulator.

        Object names in the path are replaced by ids. Raises EventError if the emulator refuses.
        """
        self._send_request(inputs.method, self._fill_in_ids(inputs.path), inputs.body)

    def _fill_in_ids(self, path: str) -> str:
        """Return the path with each `{NAME}` replaced by the id of the object of this name.

        Raises EventError unless exactly one object has the name.
        """
        return _OBJECT_NAME.sub(lambda match: self._get_object_id(match[1]), path)

    def _get_object_id(self, name: str) -> str:
        """Return the id of the object called `name`, which may be PLATFORM.KIND.NAME.

        Raises:
            EventError: no object has the name, or several have it.
        """
        addresses_by_id: dict[str, str] = {}
        for platform, kinds in list_objects(self.server).items():
            for kind, objects in kinds.items():
                for platform_object in objects:
                    # The address is for objects of different kinds that share a name.
                    address = f"{platform}.{kind}.{platform_object['name']}"
                    if name in (platform_object["name"], address):
                        addresses_by_id[platform_object["id"]] = address
        if len(addresses_by_id) == 1:
            return next(iter(addresses_by_id))
        if addresses_by_id:
            addresses = ", ".join(sorted(addresses_by_id.values()))
            raise EventError(f"{name!r} is ambiguous: {addresses}")
        raise EventError(f"no object is named {name!r} at this time")

    def _is_found(self, path: str) -> bool:
        """Return True if the emulator answers a GET request for the path without an error."""
        answer = self.server.app.test_client().get(path, environ_overrides=_AS_TRUSTED)
        return answer.status_code < 400

    def _send_request(self, method: str, path: str, body: Any) -> Any:
        """Send a request with all permissions to the emulator, and return the answer's JSON.

        None means an answer without JSON. Raises EventError for a status of 400 or higher.
        """
        # Trusted: the event stands for somebody with access to everything.
        answer = self.server.app.test_client().open(
            path, method=method, json=body, environ_overrides=_AS_TRUSTED
        )
        if answer.status_code >= 400:
            message = answer.get_data(as_text=True).strip()
            body_text = "" if body is None else f" {json.dumps(body)}"
            raise EventError(
                f"{method} {path}{body_text}: the emulator answered {answer.status_code}: {message}"
            )
        return answer.get_json(silent=True)


_AS_TRUSTED: Final = {TRUSTED: True}


def list_objects(server: Server) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return id, name and status of each object on the emulator, by platform and kind."""
    answer = server.app.test_client().get(f"{_CONTROL_PATH}/objects")
    return {
        platform: {
            kind: [
                {"id": item["id"], "name": item["name"], "status": item.get("status", "")}
                for item in objects
            ]
            for kind, objects in kinds.items()
        }
        for platform, kinds in answer.get_json().items()
    }


def _is_match(pattern: str) -> bool:
    """Return True if Flask's current request matches `pattern`: a method, a space, and a regex.

    The regex is searched in the path.
    """
    method, _, path = pattern.partition(" ")
    return request.method == method and re.search(path, request.path) is not None


def _require_platform(platform: str) -> None:
    """Raise EventError unless `platform` is a platform with an emulator."""
    platforms_with_emulator = [
        name for name, definition in platforms().items() if definition.emulator
    ]
    if platform not in platforms_with_emulator:
        raise EventError(
            f"unknown platform {platform!r}; the platforms are {', '.join(platforms_with_emulator)}"
        )
