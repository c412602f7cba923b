"""What happens in a case: played on its emulator, at its time or on a request."""

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

from gpuform.providers.emulator.gate import TRUSTED
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
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.values import property_paths

_PLACE: Final = re.compile(r"\{([^{}]+)\}")
_WRITES: Final = ("POST", "PUT", "PATCH")
_CONTROLS: Final = "/_emulator"


class EventError(EngineError):
    """An event that cannot happen as it is written."""

    help_page = "guides/test-a-stack"


@dataclass(slots=True)
class Events:
    """Those of one case, made before the server is asked anything.

    `failed` are the ones that could not happen, each with the reason. What has happened is kept in
    the file `kept`, for who looks after the run was killed.
    """

    server: Server
    events: Sequence[EventInputs]
    kept: Path
    failed: dict[int, str] = field(default_factory=dict)
    _open: dict[int, EventInputs] = field(default_factory=dict)
    _happened: dict[int, int | None] = field(default_factory=dict)
    """By event; of a fault the number that the emulator has given to it."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.server.app.after_request(self._seen)

    @classmethod
    def of_killed(cls, server: Server, events: Sequence[EventInputs], kept: Path) -> "Events":
        """Those of a run that was killed, as far as they have happened."""
        found = json.loads(kept.read_text(encoding="utf-8"))
        failed, happened = dict(found["failed"]), dict(found["happened"])
        return cls(server, events, kept, failed=failed, _happened=happened)

    def arrange(self) -> None:
        """Lets those happen that come before the run, and waits for the others from now on."""
        self._open = dict(enumerate(self.events))
        self._keep()
        begin = self.server.clock.now()
        for number, event in enumerate(self.events):
            if event.at is not None:
                moment = begin + property_paths.parse_duration(event.at)
                self.server.clock.schedule(moment, partial(self._play, number))
            elif event.on is None:
                self._play(number)

    @property
    def unplayed(self) -> list[int]:
        """The events that the run has not lived to see."""
        return [each for each in range(len(self.events)) if each not in self._happened]

    @property
    def misses(self) -> dict[int, str]:
        """The faults that no request of the run has met, or one that none was to meet."""
        rules = {event: rule for event, rule in self._happened.items() if rule is not None}
        if not rules:
            return {}
        applied = self._ask("GET", f"{_CONTROLS}/faults/applied", None)
        met = {event: str(rule) in applied for event, rule in sorted(rules.items())}
        return {
            number: "the fault met a request" if is_met else "the fault met no request"
            for number, is_met in met.items()
            if is_met != (self.events[number].met is not False)
        }

    def _seen(self, response: Response) -> Response:
        """After a request, whose effect is kept by now."""
        if not request.environ.get(TRUSTED) and not request.path.startswith(_CONTROLS):
            for number, event in list(self._open.items()):
                if event.on is not None and _meets(event.on):
                    self._play(number)
        return response

    def _play(self, number: int) -> None:
        with self._lock:
            event = self._open.pop(number, None)
        if event is None:
            return
        self._happened[number] = None
        if event.kill:
            self._keep()
        try:
            made = self._happen(event)
        except EventError as error:
            self.failed[number] = error.message
        else:
            if event.fault is not None:
                self._happened[number] = made["number"]

    def _keep(self) -> None:
        happened, failed = list(self._happened.items()), list(self.failed.items())
        content = {"happened": happened, "failed": failed}
        self.kept.write_text(json.dumps(content), encoding="utf-8")

    def _happen(self, event: EventInputs) -> Any:
        kind = next(name for name in EVENT_KINDS if getattr(event, name) is not None)
        return getattr(self, f"_{kind}")(getattr(event, kind))

    def _kill(self, _wanted: bool) -> None:
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))

    def _stock_out(self, platform: str) -> None:
        _require(platform)
        for method in _WRITES:
            rule = {"platform": platform, "method": method, "capacity": True, "count": None}
            self._fault(rule)

    def _status(self, wanted: StatusInputs) -> None:
        own = re.escape(self._id_of(wanted.object))
        self._fault({"path": f"/{own}$", "status_override": wanted.status, "count": None})

    def _credit_gone(self, platform: str) -> None:
        _require(platform)
        control = f"{_CONTROLS}/{platform}/credit"
        if not self._has(control):
            raise EventError(f"{platform} has no credit that could be gone")
        self._ask("POST", control, {"exhausted": True})

    def _node_not_ready(self, wanted: NodeInputs) -> None:
        cluster = self._id_of(wanted.cluster)
        path = f"{_CONTROLS}/kubernetes/{cluster}/nodes/{wanted.node}"
        self._ask("POST", path, {"ready": False})

    def _proposal(self, wanted: ProposalInputs) -> None:
        cluster = self._id_of(wanted.cluster)
        told = {"cluster_id": cluster, "instance_name": wanted.node}
        told |= {"mode": wanted.mode or "", "reason": wanted.reason or ""}
        body = {name: value for name, value in told.items() if value}
        self._ask("POST", f"{_CONTROLS}/together/remediations", body)

    def _job(self, wanted: JobInputs) -> None:
        """A pod, or where the cluster has Slurm, a job of it."""
        cluster = self._id_of(wanted.cluster)
        length = None if wanted.runs_for is None else property_paths.parse_duration(wanted.runs_for)
        body = {"name": wanted.name, "gpus": wanted.gpus or 0, "runs_for": length}
        slurm = f"{_CONTROLS}/slurm/{cluster}"
        if self._answers(f"{slurm}/jobs"):
            nodes = [wanted.node] if wanted.node else []
            begun = self._ask("POST", f"{slurm}/jobs", {**body, "nodes": nodes})
            is_running = begun["state"] == "RUNNING"
            shown = {"command": ["scontrol", "show", "node", *nodes]}
            is_known = is_running or self._ask("POST", f"{slurm}/run", shown)["code"] == 0
        else:
            pods = f"{_CONTROLS}/kubernetes/{cluster}/pods"
            begun = self._ask("POST", pods, {**body, "node": wanted.node})
            is_running = begun["status"]["phase"] == "Running"
            node = f"/kubernetes/{cluster}/api/v1/nodes/{wanted.node}"
            is_known = not wanted.node or self._answers(node)
        if not is_known:
            raise EventError(f"there is no node {wanted.node}")
        if not is_running:
            place = wanted.node or "no node"
            room = "has no room" if wanted.node else "has room"
            raise EventError(f"the job {wanted.name} does not begin: {place} {room} for it")

    def _fault(self, rule: Mapping[str, Any]) -> Any:
        return self._ask("POST", f"{_CONTROLS}/faults", rule)

    def _control(self, wanted: ControlInputs) -> None:
        path = f"{_CONTROLS}/{self._filled(wanted.path)}"
        if not self._has(path):
            raise EventError(f"the emulator has no control {wanted.path}")
        self._ask("POST", path, wanted.body or {})

    def _has(self, control: str) -> bool:
        return self.server.app.url_map.bind("").test(control, "POST")

    def _request(self, wanted: OutsideRequestInputs) -> None:
        self._ask(wanted.method, self._filled(wanted.path), wanted.body)

    def _filled(self, path: str) -> str:
        return _PLACE.sub(lambda found: self._id_of(found[1]), path)

    def _id_of(self, name: str) -> str:
        """The id of the object of that name on any platform, or of PLATFORM.KIND.NAME."""
        ids: dict[str, str] = {}
        for platform, kinds in objects_of(self.server).items():
            for kind, objects in kinds.items():
                for each in objects:
                    if name in (each["name"], f"{platform}.{kind}.{each['name']}"):
                        ids[each["id"]] = f"{platform}.{kind}.{each['name']}"
        if len(ids) == 1:
            return next(iter(ids))
        if ids:
            raise EventError(f"{name!r} is ambiguous: {', '.join(sorted(ids.values()))}")
        raise EventError(f"no object is named {name!r} at that time")

    def _answers(self, path: str) -> bool:
        answer = self.server.app.test_client().get(path, environ_overrides=_AS_TRUSTED)
        return answer.status_code < 400

    def _ask(self, method: str, path: str, body: Any) -> Any:
        answer = self.server.app.test_client().open(
            path, method=method, json=body, environ_overrides=_AS_TRUSTED
        )
        if answer.status_code >= 400:
            said = answer.get_data(as_text=True).strip()
            shown = "" if body is None else f" {json.dumps(body)}"
            raise EventError(
                f"{method} {path}{shown} was answered with {answer.status_code}: {said}"
            )
        return answer.get_json(silent=True)


_AS_TRUSTED: Final = {TRUSTED: True}


def objects_of(server: Server) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """What is on the platforms, by platform and kind: id, name and status of each."""
    answer = server.app.test_client().get(f"{_CONTROLS}/objects")
    return {
        platform: {
            kind: [
                {"id": each["id"], "name": each["name"], "status": each.get("status", "")}
                for each in objects
            ]
            for kind, objects in kinds.items()
        }
        for platform, kinds in answer.get_json().items()
    }


def _meets(pattern: str) -> bool:
    method, _, path = pattern.partition(" ")
    return request.method == method and re.search(path, request.path) is not None


def _require(platform: str) -> None:
    known = [name for name, each in platforms().items() if each.emulator]
    if platform not in known:
        raise EventError(f"there is no platform {platform!r}; there is {', '.join(known)}")
