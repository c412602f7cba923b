"""Apply a plan to an emulator by hand while something goes wrong, and note what came of it.

Shares no code with `gpuform.stacks.rehearsing`: the run is a command or `up` over HTTP, the hazard
is a fault or a control of the emulator, and the fleet is what the platforms' own APIs answer.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

from flask import Response, request

from gpuform.providers.emulator.routing import TRUSTED
from gpuform.providers.emulator.server import Server
from gpuform.schemas.errors import GpuformError
from gpuform.schemas.rehearsal import HazardKind
from gpuform.stacks.operations import SelectedStack
from gpuform.stacks.operations.automation import preview, up
from gpuform.stacks.operations.runs.options import RunOptions

NO_ROLE_CHECK: Final = "^(?!.*00000000-0000-0000)"
"""Matches every path but that of the request by which gpuform asks what a key may do."""
_HOUR_S: Final = 3600.0
_READING: Final = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True)
class HandHazard:
    """A hazard at the first changing request with this method."""

    kind: HazardKind
    method: str = ""
    when: Literal["before", "after"] = "before"


@dataclass(frozen=True)
class HandResult:
    """How the run ended, whether the plan is empty at last, and what the fleet has lost."""

    ending: str
    is_mended: bool
    lost_gpus: int
    gpu_hours: float
    volumes: frozenset[str]


@dataclass
class HandPlayer:
    """Plays on one served emulator. Create it before the first request to the server."""

    server: Server
    variables: dict[str, str]
    _samples: list[tuple[float, int]] = field(default_factory=list)
    _once_ready: set[str] = field(default_factory=set)
    _hook: Callable[[Literal["before", "after"]], Response | None] | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.server.app.before_request(self._handle_request)
        self.server.app.after_request(self._handle_answer)

    def forget_samples(self) -> None:
        """Forget the fleet until now: the next run is the one that counts."""
        self._samples.clear()

    def play(
        self, stack: SelectedStack, folder: Path, options: RunOptions, hazard: HandHazard
    ) -> HandResult:
        """Run `up` under the hazard, and then, if anything is left to do, once more without it."""
        self._sample()
        gpus_before = self._samples[-1][1]
        with self._let_happen(hazard):
            if hazard.kind is HazardKind.KILLED:
                ending = self._run_and_kill(folder, options, hazard)
            else:
                ending = self._run(stack, options)
        is_outage = hazard.kind in (HazardKind.NO_CAPACITY, HazardKind.QUOTA, HazardKind.NO_CREDIT)
        if ending != "succeeded" or self._has_changes(stack, options):
            self._advance(24 * _HOUR_S if is_outage else _HOUR_S)
            self._end_hazard()
            self._run(stack, options)
        is_mended = not self._has_changes(stack, options)
        self._sample()
        target = min(gpus_before, self._samples[-1][1])
        lost = [(time, max(0, target - gpus)) for time, gpus in self._samples]
        gpu_seconds = sum((later - time) * gpus for (time, gpus), (later, _) in pairwise(lost))
        return HandResult(
            ending,
            is_mended,
            max(gpus for _, gpus in lost),
            gpu_seconds / _HOUR_S,
            frozenset(self._list_volumes()),
        )

    def _run(self, stack: SelectedStack, options: RunOptions) -> str:
        """Run `up` in this process, and return how it ended."""
        try:
            return str(up(stack, options).reason)
        except GpuformError:
            return "failed"

    def _has_changes(self, stack: SelectedStack, options: RunOptions) -> bool:
        """Return whether a preview fails or shows anything to do."""
        result = preview(stack, options)
        return not result.succeeded or result.has_changes

    def _run_and_kill(self, folder: Path, options: RunOptions, hazard: HandHazard) -> str:
        """Run the command, and kill its process at the hazard's request."""
        flags = [f"--allow={name}" for name in options.allow]
        environ = {"PATH": os.environ["PATH"], "HOME": str(folder), **self.variables}
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuform.stacks.cli", "up", "--yes", "--stack", "dev", *flags],
            cwd=folder,
            env=environ,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def kill(when: str) -> Response | None:
            if when != hazard.when or not _is_change(hazard.method):
                return None
            self._hook = None
            process.kill()
            process.wait()
            # The request of a run that is killed before has no effect, and nobody reads the answer.
            return Response(status=503)

        self._hook = kill
        code = process.wait()
        self._hook = None
        return "killed" if code < 0 else "succeeded" if code == 0 else "failed"

    @contextmanager
    def _let_happen(self, hazard: HandHazard) -> Iterator[None]:
        """Add the fault, or wait for the request after which the hazard begins."""
        rule: dict[str, Any] = {"method": hazard.method, "path": NO_ROLE_CHECK}
        match hazard.kind:
            case HazardKind.NO_CAPACITY:
                self._control("POST", "faults", {**rule, "capacity": True, "count": None})
            case HazardKind.LOST_REQUEST:
                self._control("POST", "faults", {**rule, "drop": hazard.when})
            case HazardKind.RATE_LIMIT:
                headers = {"Retry-After": "30"}
                fault = {**rule, "status": 429, "headers": headers, "count": 5}
                self._control("POST", "faults", fault)
            case HazardKind.NO_CREDIT:
                self._hook = lambda when: self._exhaust_credit(hazard.method, when)
        yield
        self._hook = None

    def _exhaust_credit(self, method: str, when: str) -> None:
        """Exhaust Together's credit after the first change with the method."""
        if when == "after" and _is_change(method):
            self._hook = None
            self._control("POST", "together/credit", {"exhausted": True})

    def _end_hazard(self) -> None:
        """Clear all faults, and add credit."""
        self._control("DELETE", "faults")
        self._control("POST", "together/credit", {"exhausted": False})
        self._sample()

    def _advance(self, seconds: float) -> None:
        """Let time pass on the platforms, with a sample of the fleet every ten minutes."""
        while seconds > 0:
            step = min(seconds, 600.0)
            self._control("POST", "clock", {"advance": step})
            self._sample()
            seconds -= step

    def _handle_request(self) -> Response | None:
        if self._hook is None or request.environ.get(TRUSTED):
            return None
        return self._hook("before")

    def _handle_answer(self, response: Response) -> Response:
        """Sample the fleet after each change and each move of the clock."""
        if request.environ.get(TRUSTED):
            return response
        if request.method not in _READING:
            # Before a kill: after it, the other thread goes on, and moves the clock.
            self._sample()
            if self._hook is not None and response.status_code < 400:
                self._hook("after")
                self._sample()
        return response

    def _sample(self) -> None:
        """Note the number of GPUs on which jobs can run now."""
        with self._lock:
            self._samples.append((self.server.clock.now(), self._count_working_gpus()))

    def _count_working_gpus(self) -> int:
        """Count the GPUs of running machines in clusters that were Ready once, and run now."""
        gpus = 0
        for cluster in self._get("together/v1/compute/clusters")["clusters"]:
            if cluster["status"] == "Ready":
                self._once_ready.add(cluster["cluster_id"])
            is_on = cluster["status"] not in ("Deleting", "Paused", "OnDemandComputePaused")
            if is_on and cluster["cluster_id"] in self._once_ready:
                workers = cluster["gpu_worker_nodes"]
                gpus += sum(node["num_gpus"] for node in workers if node["status"] == "Running")
        return gpus

    def _list_volumes(self) -> Iterator[str]:
        for volume in self._get("together/v1/compute/clusters/storage/volumes")["volumes"]:
            yield volume["volume_name"]

    def _get(self, path: str) -> Any:
        key = self.variables["TOGETHER_API_KEY"]
        headers = {"Authorization": f"Bearer {key}"}
        answer = self.server.app.test_client().get(
            f"/{path}", headers=headers, environ_overrides={TRUSTED: True}
        )
        assert answer.status_code == 200, (path, answer.get_data(as_text=True))
        return answer.get_json()

    def _control(self, method: str, path: str, body: Any = None) -> None:
        answer = self.server.app.test_client().open(
            f"/_emulator/{path}", method=method, json=body, environ_overrides={TRUSTED: True}
        )
        assert answer.status_code < 400, (path, answer.get_data(as_text=True))


def _is_change(method: str) -> bool:
    """Return whether Flask's current request is a change with the method."""
    is_control = request.path.startswith("/_emulator") or "00000000-0000-0000" in request.path
    return request.method == method and not is_control
