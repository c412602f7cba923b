"""GitHub: a pull request's comments are those of its issue, and its plans are artifacts of Actions.

docs.github.com/rest: issues/comments, issues/labels, actions/artifacts, commits, pulls, users.
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
    ForgeClient,
    GitHubArtifacts,
    GitHubComment,
    GitHubPull,
    GitHubUser,
)
from gpuform.stacks.code_hosts.place import KEPT_PLAN, Comment, ReviewPlace

_LARGEST_PLAN: Final = 200_000_000
"""Bytes, unpacked."""


class GitHub:
    """A repository on GitHub, and one of its pull requests."""

    longest_comment = 65_536

    def __init__(self, place: ReviewPlace, token: SecretStr) -> None:
        self.client = ForgeClient("GitHub", place.api, token=token, headers=_headers)
        self._repository = f"/repos/{quote(place.repository)}"
        self._number = place.number

    def comments(self) -> Iterator[Comment]:
        is_mine = self._author()
        for found in self.client.pages(GitHubComment, f"{self._issue}/comments"):
            if found.user is not None and is_mine(found.user):
                yield _comment(found)

    def add(self, body: str) -> Comment:
        path = f"{self._issue}/comments"
        return _comment(self.client.write(GitHubComment, "POST", path, {"body": body}))

    def edit(self, comment: int, body: str) -> Comment:
        path = f"{self._repository}/issues/comments/{comment}"
        return _comment(self.client.write(GitHubComment, "PATCH", path, {"body": body}))

    def remove(self, comment: int) -> None:
        self.client.send("DELETE", f"{self._repository}/issues/comments/{comment}")

    def label(self, add: str, drop: tuple[str, ...]) -> None:
        for name in drop:
            with contextlib.suppress(NotFound):
                self.client.send("DELETE", f"{self._issue}/labels/{quote(name, safe='')}")
        self.client.send("POST", f"{self._issue}/labels", {"labels": [add]})

    def reviewed_plan(self, commit: str, file: str) -> bytes:
        number, head = self._head(commit)
        name = f"{KEPT_PLAN}-{head}"
        path = f"{self._repository}/actions/artifacts"
        found = self.client.get(GitHubArtifacts, path, {"name": name, "per_page": "100"})
        # The name is anybody's to choose; the run of that commit is not.
        made = [a for a in found.artifacts if a.workflow_run and a.workflow_run.head_sha == head]
        kept = [artifact for artifact in made if not artifact.expired]
        if not kept:
            gone = "is kept no longer" if made else "was not kept"
            raise GpuformError(
                f"GitHub: the plan of pull request #{number} {gone} (artifact {name})",
                hint="run the plan job of that commit again, and review what it shows",
            )
        last = max(kept, key=lambda each: (each.created_at or "", each.id))
        packed = self.client.download(f"{path}/{last.id}/zip")
        return _unpacked(packed, name, file)

    @property
    def _issue(self) -> str:
        return f"{self._repository}/issues/{self._number}"

    def _author(self) -> Callable[[GitHubUser], bool]:
        """Tells who the token's owner is. That of a workflow may not ask, and is a bot."""
        try:
            login = self.client.get(GitHubUser, "/user").login
        except (AuthError, PermissionDenied, NotFound):
            return lambda user: user.type == "Bot"
        return lambda user: user.login == login

    def _head(self, commit: str) -> tuple[int, str]:
        """The pull request's number, and its last commit."""
        if self._number is not None:
            pull = self.client.get(GitHubPull, f"{self._repository}/pulls/{self._number}")
            return self._number, pull.head.sha
        pulls = self.client.pages(GitHubPull, f"{self._repository}/commits/{commit}/pulls")
        merged = [pull for pull in pulls if pull.merged_at]
        if not merged:
            raise GpuformError(
                f"GitHub: no merged pull request has commit {commit}: there is no reviewed plan",
                hint="bring changes to this branch by pull requests",
            )
        return merged[0].number, merged[0].head.sha


def _headers(token: str) -> Mapping[str, str]:
    return {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {token}",
        "X-GitHub-Api-Version": "2022-11-28",
        "User-Agent": "gpuform",
    }


def _comment(found: GitHubComment) -> Comment:
    return Comment(found.id, found.body or "", found.html_url)


def _unpacked(packed: bytes, name: str, file: str) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            if archive.getinfo(file).file_size > _LARGEST_PLAN:
                raise GpuformError(f"GitHub: {file} in the artifact {name} is too large for a plan")
            return archive.read(file)
    except (zipfile.BadZipFile, KeyError):
        raise GpuformError(f"GitHub: the artifact {name} has no {file}") from None
