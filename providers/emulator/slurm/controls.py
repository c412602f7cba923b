"""What tests do to a cluster's Slurm from the side, under `/_emulator/slurm/`."""

from collections.abc import Iterator
from contextlib import contextmanager

from flask import Response, request
from pydantic import BaseModel, ConfigDict

from gpuform.providers.emulator.answers import answer
from gpuform.providers.emulator.routing import Controls, Table
from gpuform.providers.emulator.slurm.commands import run
from gpuform.providers.emulator.slurm.estate import Slurm
from gpuform.providers.emulator.slurm.jobs import JobRequest, Measure
from gpuform.providers.emulator.together.errors import ApiError
from gpuform.providers.emulator.together.operations import Operations


class _Command(BaseModel):
    model_config = ConfigDict(extra="forbid")
    command: list[str]


class _Controller(BaseModel):
    model_config = ConfigDict(extra="forbid")
    is_answering: bool


class _Measures(Measure):
    node: str = ""


class SlurmControls(Controls):
    def _routes(self) -> Table:
        return (
            ("POST", "/<cluster_id>/run", self._run),
            ("POST", "/<cluster_id>/jobs", self._add_job),
            ("GET", "/<cluster_id>/jobs", self._list_jobs),
            ("POST", "/<cluster_id>/measures", self._set_measure),
            ("POST", "/<cluster_id>/controller", self._set_controller),
        )

    def _run(self, cluster_id: str) -> Response:
        """A command, as in a pod of Slurm: `{"command": ["squeue"]}`."""
        wanted = _Command.model_validate_json(request.get_data())
        with self._slurm(cluster_id) as slurm:
            result = run(slurm, wanted.command)
        return answer({"stdout": result.out, "stderr": result.err, "code": result.code})

    def _add_job(self, cluster_id: str) -> Response:
        """A job of any kind and length; it starts at once where there is room."""
        wanted = JobRequest.model_validate_json(request.get_data())
        with self._slurm(cluster_id) as slurm:
            (job,) = slurm.submit(wanted)
        return answer(job.model_dump(mode="json"), 201)

    def _list_jobs(self, cluster_id: str) -> Response:
        with self._slurm(cluster_id) as slurm:
            return answer([job.model_dump(mode="json") for job in slurm.jobs])

    def _set_measure(self, cluster_id: str) -> Response:
        """What scripts find on a node: `{"node": "slurm-worker-1", "figure": 312.5}`.

        Without a node, on all that have none of their own. Jobs that run are not changed.
        """
        wanted = _Measures.model_validate_json(request.get_data())
        with self._slurm(cluster_id) as slurm:
            slurm.set_measure(wanted.node, Measure(**wanted.model_dump(exclude={"node"})))
        return answer(wanted.model_dump(mode="json"))

    def _set_controller(self, cluster_id: str) -> Response:
        """Whether slurmctld answers; jobs go on without it."""
        wanted = _Controller.model_validate_json(request.get_data())
        with self._slurm(cluster_id) as slurm:
            slurm.set_answering(is_answering=wanted.is_answering)
        return answer({"is_answering": wanted.is_answering})

    @contextmanager
    def _slurm(self, cluster_id: str) -> Iterator[Slurm]:
        now = self._clock.now()
        self._store.sweep(now)
        cluster = Operations(self._store, now).cluster(cluster_id)
        if cluster.settings.cluster_type != "SLURM":
            raise ApiError(404, f"cluster {cluster_id!r} has no Slurm")
        slurm = Slurm(self._store, cluster, now)
        yield slurm
        slurm.keep()
