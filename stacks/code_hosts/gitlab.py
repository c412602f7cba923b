"""GitLab: a merge request's comments are its notes, and its plans are artifacts of its jobs.

docs.gitlab.com/api: notes, merge_requests, commits, pipelines, jobs, job_artifacts, users.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import quote

from pydantic import SecretStr

from gpuform.providers.errors import GpuformError
from gpuform.stacks.code_hosts.client import (
    ForgeClient,
    GitLabJob,
    GitLabMergeRequest,
    GitLabNote,
    GitLabPipeline,
    GitLabUser,
)
from gpuform.stacks.code_hosts.place import KEPT_PLAN, Comment, ReviewPlace


class GitLab:
    """A project on GitLab, and one of its merge requests."""

    longest_comment = 1_000_000

    def __init__(self, place: ReviewPlace, token: SecretStr) -> None:
        self.client = ForgeClient("GitLab", place.api, token=token, headers=_headers)
        self._project = f"/projects/{quote(place.repository, safe='')}"
        self._number = place.number

    def comments(self) -> Iterator[Comment]:
        owner = self.client.get(GitLabUser, "/user")
        oldest_first = {"order_by": "created_at", "sort": "asc"}
        for found in self.client.pages(GitLabNote, f"{self._merge_request}/notes", oldest_first):
            if found.author == owner and not found.system:
                yield Comment(found.id, found.body)

    def add(self, body: str) -> Comment:
        return self._written("POST", f"{self._merge_request}/notes", body)

    def edit(self, comment: int, body: str) -> Comment:
        return self._written("PUT", f"{self._merge_request}/notes/{comment}", body)

    def remove(self, comment: int) -> None:
        self.client.send("DELETE", f"{self._merge_request}/notes/{comment}")

    def label(self, add: str, drop: tuple[str, ...]) -> None:
        body = {"add_labels": add, "remove_labels": ",".join(drop)}
        self.client.send("PUT", self._merge_request, body)

    def reviewed_plan(self, commit: str, file: str) -> bytes:
        number = self._number if self._number is not None else self._merged(commit)
        path = f"{self._project}/merge_requests/{number}/pipelines"
        pipelines = self.client.pages(GitLabPipeline, path)
        for pipeline in sorted(pipelines, key=lambda each: each.id, reverse=True):
            jobs = self.client.pages(GitLabJob, f"{self._project}/pipelines/{pipeline.id}/jobs")
            plans = [job for job in jobs if job.name == KEPT_PLAN]
            if not plans:
                continue  # a merge train's, which plans nothing
            last = max(plans, key=lambda job: job.id)
            if last.status != "success":
                raise GpuformError(
                    f"GitLab: the last plan of merge request !{number} is not there: its job "
                    f"{last.id} is {last.status}",
                    hint="run it again, and review what it shows",
                )
            return self.client.download(f"{self._project}/jobs/{last.id}/artifacts/{file}")
        raise GpuformError(
            f"GitLab: merge request !{number} has no job {KEPT_PLAN}: there is no reviewed plan",
            hint="run a pipeline of the merge request",
        )

    @property
    def _merge_request(self) -> str:
        return f"{self._project}/merge_requests/{self._number}"

    def _merged(self, commit: str) -> int:
        path = f"{self._project}/repository/commits/{commit}/merge_requests"
        found = self.client.pages(GitLabMergeRequest, path)
        merged = [each for each in found if each.state == "merged"]
        if not merged:
            raise GpuformError(
                f"GitLab: no merged merge request has commit {commit}: there is no reviewed plan",
                hint="bring changes to this branch by merge requests",
            )
        return merged[0].iid

    def _written(self, method: str, path: str, body: str) -> Comment:
        found = self.client.write(GitLabNote, method, path, {"body": body})
        return Comment(found.id, found.body)


def _headers(token: str) -> Mapping[str, str]:
    return {"PRIVATE-TOKEN": token, "User-Agent": "gpuform"}
