"""Review plans on GitLab: comments are notes of the merge request, and plans are artifacts of jobs.

Endpoints (docs.gitlab.com/api): notes, merge_requests, commits, pipelines, jobs, job_artifacts,
users.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import quote

from pydantic import SecretStr

from gpuform.providers.errors import GpuformError
from gpuform.stacks.code_hosts.client import (
    CodeHostClient,
    GitLabJob,
    GitLabMergeRequest,
    GitLabNote,
    GitLabPipeline,
    GitLabUser,
)
from gpuform.stacks.code_hosts.review_target import PLAN_ARTIFACT, Comment, ReviewTarget


class GitLab:
    """A project on GitLab, and one of its merge requests."""

    max_comment_length = 1_000_000

    def __init__(self, place: ReviewTarget, token: SecretStr) -> None:
        self.client = CodeHostClient("GitLab", place.api_url, token=token, headers=_create_headers)
        self._project = f"/projects/{quote(place.repository, safe='')}"
        self._number = place.pull_request

    def list_comments(self) -> Iterator[Comment]:
        """Yield the token owner's notes on the merge request, except system notes, oldest first."""
        owner = self.client.get(GitLabUser, "/user")
        oldest_first = {"order_by": "created_at", "sort": "asc"}
        for note in self.client.iterate_items(
            GitLabNote, f"{self._merge_request_path}/notes", oldest_first
        ):
            # The stamp of somebody else's note could be forged.
            if note.author == owner and not note.system:
                yield Comment(note.id, note.body)

    def add_comment(self, body: str) -> Comment:
        return self._write_note("POST", f"{self._merge_request_path}/notes", body)

    def edit_comment(self, comment: int, body: str) -> Comment:
        return self._write_note("PUT", f"{self._merge_request_path}/notes/{comment}", body)

    def delete_comment(self, comment: int) -> None:
        self.client.send("DELETE", f"{self._merge_request_path}/notes/{comment}")

    def set_label(self, added_label: str, removed_labels: tuple[str, ...]) -> None:
        body = {"add_labels": added_label, "remove_labels": ",".join(removed_labels)}
        self.client.send("PUT", self._merge_request_path, body)

    def fetch_reviewed_plan(self, commit: str, file_name: str) -> bytes:
        """Return the file from the newest plan job in the newest pipeline that has such a job.

        Without the number of a merge request, it is the merged one that brought `commit` to its
        branch.

        Raises:
            GpuformError: no pipeline has a plan job, or the newest plan job did not succeed, or no
                merge
                request with `commit` was merged.
        """
        number = self._number if self._number is not None else self._find_merged_request(commit)
        path = f"{self._project}/merge_requests/{number}/pipelines"
        pipelines = self.client.iterate_items(GitLabPipeline, path)
        for pipeline in sorted(pipelines, key=lambda candidate: candidate.id, reverse=True):
            jobs = self.client.iterate_items(
                GitLabJob, f"{self._project}/pipelines/{pipeline.id}/jobs"
            )
            plans = [job for job in jobs if job.name == PLAN_ARTIFACT]
            if not plans:
                continue  # a merge train's, which plans nothing
            newest_job = max(plans, key=lambda job: job.id)
            # An older plan would be of other commits.
            if newest_job.status != "success":
                raise GpuformError(
                    f"GitLab: the last plan of merge request !{number} does not exist: its job "
                    f"{newest_job.id} is {newest_job.status}",
                    hint="run the command again, and review what it shows",
                )
            return self.client.download(
                f"{self._project}/jobs/{newest_job.id}/artifacts/{file_name}"
            )
        raise GpuformError(
            f"GitLab: merge request !{number} has no job {PLAN_ARTIFACT}: there is no reviewed "
            "plan",
            hint="run a pipeline of the merge request",
        )

    @property
    def _merge_request_path(self) -> str:
        """Return the API path of the merge request."""
        return f"{self._project}/merge_requests/{self._number}"

    def _find_merged_request(self, commit: str) -> int:
        """Return the number of the first merged merge request that has the commit.

        Raises:
            GpuformError: no merged merge request has the commit.
        """
        path = f"{self._project}/repository/commits/{commit}/merge_requests"
        requests = self.client.iterate_items(GitLabMergeRequest, path)
        merged = [request for request in requests if request.state == "merged"]
        if not merged:
            raise GpuformError(
                f"GitLab: no merged merge request has commit {commit}: there is no reviewed plan",
                hint="bring changes to this branch by merge requests",
            )
        return merged[0].iid

    def _write_note(self, method: str, path: str, body: str) -> Comment:
        """Write a note by POST (new) or PUT (existing), and return the note as a comment."""
        note = self.client.write(GitLabNote, method, path, {"body": body})
        return Comment(note.id, note.body)


def _create_headers(token: str) -> Mapping[str, str]:
    """Return the headers of every request to GitLab, with the token."""
    return {"PRIVATE-TOKEN": token, "User-Agent": "gpuform"}
