"""Review plans on GitLab: comments are notes of the merge request, and plans are artifacts of jobs.

Endpoints (docs.gitlab.com/api): notes, merge_requests, commits, pipelines, jobs, job_artifacts,
users.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final
from urllib.parse import quote

from gpuform.providers.errors import GpuformError
from gpuform.stacks.code_hosts.client import CodeHostModel
from gpuform.stacks.code_hosts.comment_api import CommentApi
from gpuform.stacks.code_hosts.review_target import PLAN_ARTIFACT, Comment, ReviewStatus


class GitLabUser(CodeHostModel):
    id: int


class GitLabNote(CodeHostModel):
    id: int
    body: str = ""
    system: bool = False
    author: GitLabUser | None = None


class GitLabMergeRequest(CodeHostModel):
    iid: int
    state: str
    sha: str = ""
    target_branch: str = ""
    merged_at: str | None = None
    merge_commit_sha: str | None = None
    squash_commit_sha: str | None = None


class GitLabPipeline(CodeHostModel):
    id: int
    project_id: int | None = None


class GitLabJob(CodeHostModel):
    id: int
    name: str
    status: str


class GitLabTriggerJob(GitLabJob):
    """A job that triggers another pipeline; None until GitLab has created that pipeline."""

    downstream_pipeline: GitLabPipeline | None = None


WAVES_SUFFIX: Final = "-waves"
"""Ends the name of the trigger job whose child pipeline has the plan job of the same name."""


class GitLab(CommentApi[GitLabNote]):
    """A project on GitLab, and one of its merge requests."""

    max_comment_length = 1_000_000
    item_type = GitLabNote
    edit_method = "PUT"
    list_params: ClassVar = {"order_by": "created_at", "sort": "asc"}

    @staticmethod
    def create_headers(token: str) -> Mapping[str, str]:
        """Return the headers of every request to GitLab, with the token."""
        return {"PRIVATE-TOKEN": token, "User-Agent": "gpuform"}

    @property
    def comments_path(self) -> str:
        return f"{self._merge_request_path}/notes"

    def create_author_check(self) -> Callable[[GitLabNote], bool]:
        owner = self.client.get(GitLabUser, "/user")
        return lambda note: note.author == owner

    def to_comment(self, item: GitLabNote) -> Comment | None:
        """Convert a note into a comment; None for a note written by GitLab itself."""
        return None if item.system else Comment(item.id, item.body)

    def set_label(self, added_label: str, removed_labels: tuple[str, ...]) -> None:
        body = {"add_labels": added_label, "remove_labels": ",".join(removed_labels)}
        self.client.send("PUT", self._merge_request_path, body)

    def set_status(self, status: ReviewStatus) -> None:
        """Set the status `gpuform` of the commit, which GitLab shows as an external job."""
        body = {
            "state": "failed" if status.is_failure else "success",
            "name": status.key,
            "description": status.description,
            **({"target_url": self.target.run_url} if self.target.run_url else {}),
        }
        self.client.send("POST", f"{self._project}/statuses/{self.get_commit()}", body)

    def fetch_head(self) -> str:
        return self.client.get(GitLabMergeRequest, self._merge_request_path).sha

    def fetch_reviewed_plan(self, commit: str, file_name: str, job: str = PLAN_ARTIFACT) -> bytes:
        """Return the file from the newest plan job in the newest pipeline with a plan job.

        The job is in the pipeline itself, or in the child pipeline of its trigger job `JOB-waves`.
        Without the number of a merge request, it is the merged one that brought `commit` to its
        branch.

        Raises:
            GpuformError: no pipeline has a plan job, or the newest plan job did not succeed, or no
                merge request with `commit` was merged.
        """
        number = self.target.pull_request
        if number is None:
            number = self._find_merged_request(commit)
        path = f"{self._project}/merge_requests/{number}/pipelines"
        pipelines = list(self.client.iterate_items(GitLabPipeline, path))
        own_pipelines = [pipeline for pipeline in pipelines if not self._is_of_fork(pipeline)]
        for pipeline in sorted(own_pipelines, key=lambda candidate: candidate.id, reverse=True):
            plans = self._list_jobs(pipeline, job) or self._list_jobs_of_waves(pipeline, job)
            if not plans:
                continue  # a merge train's, which plans nothing
            newest_job = max(plans, key=lambda candidate: candidate.id)
            # An older plan would be of other commits.
            if newest_job.status != "success" or isinstance(newest_job, GitLabTriggerJob):
                raise GpuformError(
                    f"GitLab: the last plan of merge request !{number} does not exist: its job "
                    f"{newest_job.id} is {newest_job.status}",
                    hint="run the command again, and review what it shows",
                )
            return self.client.download(
                f"{self._project}/jobs/{newest_job.id}/artifacts/{file_name}"
            )
        if len(own_pipelines) < len(pipelines):
            raise GpuformError(
                f"GitLab: merge request !{number} is from a fork, whose pipelines make no plan "
                "here: there is no reviewed plan",
                hint="push the branch to this project, and open a merge request for it there",
            )
        raise GpuformError(
            f"GitLab: merge request !{number} has no job {job}: there is no reviewed plan",
            hint="run a pipeline of the merge request",
        )

    def _is_of_fork(self, pipeline: GitLabPipeline) -> bool:
        """Return True for a pipeline of another project than the merge request's."""
        # In a job the repository is an id; a path says nothing about the id.
        repository = self.target.repository
        is_known = pipeline.project_id is not None and repository.isdecimal()
        return is_known and str(pipeline.project_id) != repository

    def _list_jobs(self, pipeline: GitLabPipeline, name: str) -> Sequence[GitLabJob]:
        """Return the jobs called `name` in a pipeline, without trigger jobs."""
        path = f"{self._project}/pipelines/{pipeline.id}/jobs"
        return [job for job in self.client.iterate_items(GitLabJob, path) if job.name == name]

    def _list_jobs_of_waves(self, pipeline: GitLabPipeline, name: str) -> Sequence[GitLabJob]:
        """Return the jobs of this name in the child pipeline of the newest trigger job for waves.

        Without such a job there, the result is the trigger job: the pipeline was to make a plan,
        and has none. Without a trigger job, the result is empty.
        """
        path = f"{self._project}/pipelines/{pipeline.id}/bridges"
        triggers = [
            trigger
            for trigger in self.client.iterate_items(GitLabTriggerJob, path)
            if trigger.name == f"{name}{WAVES_SUFFIX}"
        ]
        if not triggers:
            return []
        newest = max(triggers, key=lambda candidate: candidate.id)
        child = newest.downstream_pipeline
        # A pipeline of another project is not found in this one.
        return (self._list_jobs(child, name) if child is not None else []) or [newest]

    @property
    def _project(self) -> str:
        """Return the path of the project in GitLab's API."""
        return f"/projects/{quote(self.target.repository, safe='')}"

    @property
    def _merge_request_path(self) -> str:
        """Return the path of the merge request in GitLab's API."""
        return f"{self._project}/merge_requests/{self.target.pull_request}"

    def _find_merged_request(self, commit: str) -> int:
        """Return the number of the merge request that brought the commit to the job's branch.

        Raises:
            GpuformError: no merged merge request has the commit.
        """
        path = f"{self._project}/repository/commits/{commit}/merge_requests"
        requests = self.client.iterate_items(GitLabMergeRequest, path)
        branch = self.target.branch
        # One into a branch that nobody protects may have the commit, too.
        merged = [
            request
            for request in requests
            if request.state == "merged" and (not branch or request.target_branch == branch)
        ]
        if not merged:
            raise GpuformError(
                f"GitLab: no merged merge request has commit {commit}: there is no reviewed plan",
                hint="bring changes to this branch by merge requests",
            )

        def get_order(request: GitLabMergeRequest) -> tuple[bool, str]:
            # Those of branches that began after the commit have it as well, and were merged later.
            commits = (request.merge_commit_sha, request.squash_commit_sha, request.sha)
            return commit not in commits, request.merged_at or ""

        return min(merged, key=get_order).iid
