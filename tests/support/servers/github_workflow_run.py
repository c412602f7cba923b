"""Play a run of a GitHub workflow: its jobs, matrices, artifacts, approvals and second runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from support.servers.ci_runners import GitHubRunner, get_environment_name, list_needs
from support.servers.github_expressions import fill, is_met

MAX_MATRIX_JOBS = 256
"""The most jobs of a matrix (docs.github.com, Actions limits)."""


@dataclass
class WorkflowRun:
    """The run of a workflow for an event.

    Jobs begin when the jobs that they need have ended. The jobs of a matrix run one after the
    other. A job of an environment that people approve waits for `approve`.
    """

    runner: GitHubRunner
    event: str
    commit: str
    pull: Mapping[str, Any] | None = None
    is_cancelled: bool = False
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Result and outputs of each job that has ended."""
    started: list[str] = field(default_factory=list)
    """The jobs in the order of their start; those of a matrix with the part: `plan-1 (1-2)`."""
    waiting: dict[str, str] = field(default_factory=dict)
    """The environment of each job that waits for an approval."""
    artifacts: dict[str, dict[str, bytes]] = field(default_factory=dict)
    _codes: dict[str, int] = field(default_factory=dict)
    """The exit codes of the jobs, those of a matrix by part."""
    _approved: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.workflow = self.runner.read_workflow(self.commit)

    def play(self) -> None:
        """Run all jobs that can run."""
        # A job stands after those that it needs, in a file that gpuform has written.
        for name, spec in self.workflow["jobs"].items():
            if name not in self.results and all(it in self.results for it in list_needs(spec)):
                self._play_job(name, spec)

    def approve(self, environment: str) -> None:
        """Approve the jobs of an environment that wait now, and go on."""
        waiting = [name for name, other in self.waiting.items() if other == environment]
        assert waiting, f"no job of {environment} waits"
        self._approved.update(waiting)
        for name in waiting:
            del self.waiting[name]
        self.play()

    def rerun_failed_jobs(self) -> None:
        """Run the jobs again that have failed, and then those that need them.

        What has succeeded keeps its results, as do the jobs of a matrix. An approval counts once.
        """
        failed = [name for name, code in self._codes.items() if code]
        assert failed, "no job has failed"
        for name in failed:
            del self._codes[name]
        self._approved.difference_update(failed)
        again = {name.partition(" ")[0] for name in failed}
        for name, spec in self.workflow["jobs"].items():
            if again.intersection(list_needs(spec)):
                again.add(name)
        for name in again:
            self.results.pop(name, None)
        self.play()

    def list_results(self) -> dict[str, str]:
        """Return the result of each job that has ended."""
        return {name: result["result"] for name, result in self.results.items()}

    def _play_job(self, job: str, spec: Mapping[str, Any]) -> None:
        """Run a job, or the jobs of its matrix, unless they wait for an approval."""
        context = self._build_context(job)
        if not is_met(spec.get("if", "success()"), context):
            state = "cancelled" if self.is_cancelled else "skipped"
            self.results[job] = {"result": state, "outputs": {}}
            return
        matrix = fill(spec.get("strategy", {}).get("matrix", {}), context)
        elements = matrix.get("include", [{}])
        assert 0 < len(elements) <= MAX_MATRIX_JOBS
        assert len(elements) == 1 or spec["strategy"]["fail-fast"] is False
        names = [f"{job} ({it['part']})" if it else job for it in elements]
        self._reject_shared_group(spec, context, elements)
        outputs: dict[str, str] = {}
        for name, element in zip(names, elements, strict=True):
            if name not in self._codes and not self._waits(name, spec):
                self.started.append(name)
                self._codes[name] = self.runner.run_steps(
                    self.workflow,
                    job,
                    {**self._build_context(job), "matrix": element},
                    self.artifacts,
                    outputs,
                )
        if all(name in self._codes for name in names):
            has_failed = any(self._codes[name] for name in names)
            result = "failure" if has_failed else "success"
            self.results[job] = {"result": result, "outputs": outputs}

    def _waits(self, name: str, spec: Mapping[str, Any]) -> bool:
        """Return whether a job waits for an approval, and note that it does."""
        if not self.runner.waits_for_approval(spec) or name in self._approved:
            return False
        self.waiting[name] = get_environment_name(spec)
        return True

    def _build_context(self, job: str) -> dict[str, Any]:
        return self.runner.build_context(
            self.workflow,
            job,
            self.event,
            self.commit,
            self.pull,
            self.results,
            is_cancelled=self.is_cancelled,
        )

    @staticmethod
    def _reject_shared_group(
        spec: Mapping[str, Any], context: Mapping[str, Any], elements: list[dict[str, str]]
    ) -> None:
        """Fail for jobs of a matrix in one concurrency group: GitHub cancels all but two."""
        group = spec.get("concurrency", {}).get("group", "${{ matrix.part }}")
        groups = {fill(group, {**context, "matrix": element}) for element in elements}
        assert len(groups) == len(elements), f"jobs of a matrix share the group {group}"
