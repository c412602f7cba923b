"""Review plans on GitHub: comments of the pull request's issue, and artifacts of Actions.

Endpoints (docs.github.com/rest): issues/comments, issues/labels, actions/artifacts, commits, pulls,
users.
"""

import contextlib
import io
import zipfile
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import quote

from gpuform.providers.errors import AuthError, GpuformError, NotFound, PermissionDenied
from gpuform.stacks.code_hosts.client import CodeHostModel
from gpuform.stacks.code_hosts.comment_api import CommentApi
from gpuform.stacks.code_hosts.review_target import PLAN_ARTIFACT, Comment, ReviewStatus

MAX_PLAN_BYTES: Final = 200_000_000
"""The largest plan that is unpacked, in bytes."""


class GitHubUser(CodeHostModel):
    login: str = ""
    type: str = ""


class GitHubComment(CodeHostModel):
    id: int
    body: str | None = None
    html_url: str = ""
    user: GitHubUser | None = None


class GitHubHead(CodeHostModel):
    sha: str


class GitHubBase(CodeHostModel):
    ref: str


class GitHubPull(CodeHostModel):
    number: int
    head: GitHubHead
    base: GitHubBase | None = None
    merged_at: str | None = None
    merge_commit_sha: str | None = None


class GitHubRun(CodeHostModel):
    head_sha: str | None = None
    repository_id: int | None = None
    head_repository_id: int | None = None


class GitHubArtifact(CodeHostModel):
    id: int
    expired: bool
    created_at: str | None = None
    workflow_run: GitHubRun | None = None


class GitHubArtifacts(CodeHostModel):
    artifacts: list[GitHubArtifact]


class GitHub(CommentApi[GitHubComment]):
    """A repository on GitHub, and one of its pull requests."""

    max_comment_length = 65_536
    item_type = GitHubComment

    @staticmethod
    def create_headers(token: str) -> Mapping[str, str]:
        """Return the headers of every request to GitHub: the token and the version of the API."""
        return {
            "Accept": "application/vnd.github+json",
            "Authorization": f"Bearer {token}",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "gpuform",
        }

    @property
    def comments_path(self) -> str:
        return f"{self._issue_path}/comments"

    def build_comment_path(self, comment: int) -> str:
        return f"{self._repository}/issues/comments/{comment}"

    def create_author_check(self) -> Callable[[GitHubComment], bool]:
        """Return a function to recognize a comment by the token's owner.

        The token of a workflow may not read `/user`, and its owner is a bot: then every bot counts.
        """
        try:
            login = self.client.get(GitHubUser, "/user").login
        except (AuthError, PermissionDenied, NotFound):
            return lambda comment: comment.user is not None and comment.user.type == "Bot"
        return lambda comment: comment.user is not None and comment.user.login == login

    def to_comment(self, item: GitHubComment) -> Comment:
        """Convert a comment from GitHub's form to the form shared by all code hosts."""
        return Comment(item.id, item.body or "", item.html_url)

    def set_label(self, added_label: str, removed_labels: tuple[str, ...]) -> None:
        """Remove the labels one by one, then add a label; a missing label is no error."""
        for name in removed_labels:
            # The pull request has at most one of these labels.
            with contextlib.suppress(NotFound):
                self.client.send("DELETE", f"{self._issue_path}/labels/{quote(name, safe='')}")
        self.client.send("POST", f"{self._issue_path}/labels", {"labels": [added_label]})

    def set_status(self, status: ReviewStatus) -> None:
        """Set the commit status `gpuform`; the newest of a context counts."""
        body = {
            "state": "failure" if status.is_failure else "success",
            "context": status.key,
            "description": status.description,
            **({"target_url": self.target.run_url} if self.target.run_url else {}),
        }
        self.client.send("POST", f"{self._repository}/statuses/{self.get_commit()}", body)

    def fetch_head(self) -> str:
        path = f"{self._repository}/pulls/{self.target.pull_request}"
        return self.client.get(GitHubPull, path).head.sha

    def fetch_reviewed_plan(self, commit: str, file_name: str, job: str = PLAN_ARTIFACT) -> bytes:
        """Return the file from the newest plan artifact of the pull request's last commit.

        Only artifacts of runs of that commit count. `commit` serves to find a pull request of
        unknown number.

        Raises:
            GpuformError: the artifact was not kept or has expired, or has no such file, or a too
                large one.
        """
        number, head = self._get_head(commit)
        name = f"{job}-{head}"
        path = f"{self._repository}/actions/artifacts"
        listed = self.client.get(GitHubArtifacts, path, {"name": name, "per_page": "100"})
        # The name is anybody's to choose; the run of that commit in this repository is not. A fork
        # may have the same commit, but its runs have no keys to plan with.
        artifacts = [
            artifact
            for artifact in listed.artifacts
            if (run := artifact.workflow_run)
            and run.head_sha == head
            and run.head_repository_id == run.repository_id
        ]
        available = [artifact for artifact in artifacts if not artifact.expired]
        if not available:
            problem = "is kept no longer" if artifacts else "was not kept"
            raise GpuformError(
                f"GitHub: the plan of pull request #{number} {problem} (artifact {name})",
                hint="run the plan job of that commit again, and review what it shows",
            )
        newest = max(
            available,
            key=lambda artifact_of_run: (artifact_of_run.created_at or "", artifact_of_run.id),
        )
        archive_bytes = self.client.download(f"{path}/{newest.id}/zip")
        return _unpack_plan(archive_bytes, name, file_name)

    @property
    def _repository(self) -> str:
        """Return the path of the repository in GitHub's API."""
        return f"/repos/{quote(self.target.repository)}"

    @property
    def _issue_path(self) -> str:
        """Return the API path of the pull request as an issue, for comments and labels."""
        return f"{self._repository}/issues/{self.target.pull_request}"

    def _get_head(self, commit: str) -> tuple[int, str]:
        """Return the number and the last commit of the pull request.

        Without a number, it is the pull request that brought `commit` to the branch of the job.
        Raises GpuformError if there is none.
        """
        if (number := self.target.pull_request) is not None:
            return number, self.fetch_head()
        pulls = self.client.iterate_items(GitHubPull, f"{self._repository}/commits/{commit}/pulls")
        # An open pull request may have the commit, too, and so may one into a branch that nobody
        # protects.
        branch = self.target.branch
        merged = [
            pull
            for pull in pulls
            if pull.merged_at
            and (not branch or (pull.base is not None and pull.base.ref == branch))
        ]
        if not merged:
            raise GpuformError(
                f"GitHub: no merged pull request has commit {commit}: there is no reviewed plan",
                hint="bring changes to this branch by pull requests",
            )
        # Those of branches that began after the commit have it as well, and were merged later.
        first = min(merged, key=lambda pull: (pull.merge_commit_sha != commit, pull.merged_at))
        self._reject_other_pulls(first)
        return first.number, first.head.sha

    def _reject_other_pulls(self, pull: GitHubPull) -> None:
        """Raise GpuformError if the push of the job has merged other pull requests than `pull`.

        A merge queue may push several at once, and nothing would apply the plans of the others.
        """
        target = self.target
        if len(target.pushed_commits) < 2:
            return
        query = {"state": "closed", "sort": "updated", "direction": "desc", "per_page": "100"}
        path = f"{self._repository}/pulls"
        # The newest of a hundred: those of the push were merged right before it.
        recent = self.client.get(list[GitHubPull], path, {**query, "base": target.branch})
        others = [
            other.number
            for other in recent
            if other.merged_at
            and other.number != pull.number
            and other.merge_commit_sha in target.pushed_commits
        ]
        if others:
            numbers = ", ".join(f"#{number}" for number in sorted([*others, pull.number]))
            raise GpuformError(
                f"GitHub: one push has merged the pull requests {numbers}: each has a plan of its "
                "own, and one job applies one plan",
                hint="let the merge queue merge one pull request at a time, and plan what is not "
                "applied in a new pull request",
            )


def _unpack_plan(archive_bytes: bytes, artifact_name: str, file_name: str) -> bytes:
    """Return the file from the artifact's ZIP archive.

    Raises:
        GpuformError: no ZIP archive, no such file, or a file larger than `MAX_PLAN_BYTES`.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(archive_bytes)) as archive:
            # A small archive can unpack to any size.
            if archive.getinfo(file_name).file_size > MAX_PLAN_BYTES:
                raise GpuformError(
                    f"GitHub: {file_name} in the artifact {artifact_name} is too large for a plan"
                )
            return archive.read(file_name)
    except (zipfile.BadZipFile, KeyError):
        raise GpuformError(f"GitHub: the artifact {artifact_name} has no {file_name}") from None
