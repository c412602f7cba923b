"""Review plans on GitHub: comments of the pull request's issue, and artifacts of Actions.

Endpoints (docs.github.com/rest): issues/comments, issues/labels, actions/artifacts, commits, pulls,
users.
"""

import contextlib
import io
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

from pydantic import SecretStr

from gpuform.providers.errors import AuthError, GpuformError, NotFound, PermissionDenied
from gpuform.stacks.code_hosts.client import (
    CodeHostClient,
    GitHubArtifacts,
    GitHubComment,
    GitHubPull,
    GitHubUser,
)
from gpuform.stacks.code_hosts.review_target import PLAN_ARTIFACT, Comment, ReviewTarget

MAX_PLAN_BYTES: Final = 200_000_000
"""The largest plan that is unpacked, in bytes."""


class GitHub:
    """A repository on GitHub, and one of its pull requests."""

    max_comment_length = 65_536

    def __init__(self, place: ReviewTarget, token: SecretStr) -> None:
        self.client = CodeHostClient("GitHub", place.api_url, token=token, headers=_create_headers)
        self._repository = f"/repos/{quote(place.repository)}"
        self._number = place.pull_request

    def list_comments(self) -> Iterator[Comment]:
        """Yield the token owner's comments on the pull request, the oldest first."""
        is_author = self._create_author_check()
        for comment in self.client.iterate_items(GitHubComment, f"{self._issue_path}/comments"):
            # The stamp of somebody else's comment could be forged.
            if comment.user is not None and is_author(comment.user):
                yield _to_comment(comment)

    def add_comment(self, body: str) -> Comment:
        path = f"{self._issue_path}/comments"
        return _to_comment(self.client.write(GitHubComment, "POST", path, {"body": body}))

    def edit_comment(self, comment: int, body: str) -> Comment:
        path = f"{self._repository}/issues/comments/{comment}"
        return _to_comment(self.client.write(GitHubComment, "PATCH", path, {"body": body}))

    def delete_comment(self, comment: int) -> None:
        self.client.send("DELETE", f"{self._repository}/issues/comments/{comment}")

    def set_label(self, added_label: str, removed_labels: tuple[str, ...]) -> None:
        """Remove the labels one by one, then add one; a label that is missing is no error."""
        for name in removed_labels:
            # The pull request has at most one of these labels.
            with contextlib.suppress(NotFound):
                self.client.send("DELETE", f"{self._issue_path}/labels/{quote(name, safe='')}")
        self.client.send("POST", f"{self._issue_path}/labels", {"labels": [added_label]})

    def fetch_reviewed_plan(self, commit: str, file_name: str) -> bytes:
        """Return the file from the newest plan artifact of the pull request's last commit.

        Only artifacts of runs of that commit count. `commit` serves to find a pull request of
        unknown number.

        Raises:
            GpuformError: the artifact was not kept or has expired, or has no such file, or a too
                large one.
        """
        number, head = self._get_head(commit)
        name = f"{PLAN_ARTIFACT}-{head}"
        path = f"{self._repository}/actions/artifacts"
        listed = self.client.get(GitHubArtifacts, path, {"name": name, "per_page": "100"})
        # The name is anybody's to choose; the run of that commit is not.
        artifacts = [
            a for a in listed.artifacts if a.workflow_run and a.workflow_run.head_sha == head
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
    def _issue_path(self) -> str:
        """Return the API path of the pull request as an issue, for comments and labels."""
        return f"{self._repository}/issues/{self._number}"

    def _create_author_check(self) -> Callable[[GitHubUser], bool]:
        """Return a function that returns True for the token's owner.

        The token of a workflow may not read `/user`, and its owner is a bot: then every bot counts.
        """
        try:
            login = self.client.get(GitHubUser, "/user").login
        except (AuthError, PermissionDenied, NotFound):
            return lambda user: user.type == "Bot"
        return lambda user: user.login == login

    def _get_head(self, commit: str) -> tuple[int, str]:
        """Return the number and the last commit of the pull request.

        Without a number, it is the merged pull request with `commit`. Raises GpuformError if there
        is none.
        """
        if self._number is not None:
            pull = self.client.get(GitHubPull, f"{self._repository}/pulls/{self._number}")
            return self._number, pull.head.sha
        pulls = self.client.iterate_items(GitHubPull, f"{self._repository}/commits/{commit}/pulls")
        # An open pull request may have the commit, too.
        merged = [pull for pull in pulls if pull.merged_at]
        if not merged:
            raise GpuformError(
                f"GitHub: no merged pull request has commit {commit}: there is no reviewed plan",
                hint="bring changes to this branch by pull requests",
            )
        return merged[0].number, merged[0].head.sha


def _create_headers(token: str) -> Mapping[str, str]:
    """Return the headers of every request to GitHub: the token and the version of the API."""
    return {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {token}",
        "X-GitHub-Api-Version": "2022-11-28",
        "User-Agent": "gpuform",
    }


def _to_comment(comment: GitHubComment) -> Comment:
    """Convert a comment from GitHub's form; a missing text becomes an empty one."""
    return Comment(comment.id, comment.body or "", comment.html_url)


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
