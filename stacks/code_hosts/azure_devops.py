"""Review plans on Azure DevOps: a comment is the first one of a thread of the pull request.

Endpoints (learn.microsoft.com/rest/api/azure/devops, version 7.1): git/pull-request-threads,
git/pull-request-thread-comments, git/pull-request-labels, git/pull-request-statuses. The owner of a
token is in `_apis/connectionData`, which has preview versions only.
"""

import contextlib
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final
from urllib.parse import quote

from pydantic import ConfigDict, Field, SecretStr
from pydantic.alias_generators import to_camel

from gpuform.providers.errors import NotFound
from gpuform.stacks.code_hosts.client import CodeHostModel
from gpuform.stacks.code_hosts.comment_api import CommentApi, format_basic_authorization
from gpuform.stacks.code_hosts.review_target import Comment, ReviewStatus, ReviewTarget

RESOLVED_STATUS: Final = 4
"""The status `closed` of a thread: a policy that waits for open comments does not wait for ours."""
TEXT_COMMENT: Final = 1

JSON_WEB_TOKEN: Final = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")


class AzureModel(CodeHostModel):
    model_config = ConfigDict(alias_generator=to_camel)


class AzureIdentity(AzureModel):
    id: str


class AzureConnection(AzureModel):
    authenticated_user: AzureIdentity


class AzureComment(AzureModel):
    id: int
    content: str = ""
    author: AzureIdentity | None = None
    comment_type: str = ""
    is_deleted: bool = False


class AzureThread(AzureModel):
    id: int
    comments: list[AzureComment] = Field(default_factory=list)
    is_deleted: bool = False


class AzureDevOps(CommentApi[AzureThread]):
    """A repository on Azure DevOps, named PROJECT/REPOSITORY, and one of its pull requests."""

    max_comment_length = 150_000
    item_type = AzureThread
    client_options: ClassVar = {
        "params": {"api-version": "7.1"},
        "page_params": {},  # the list of threads has no pages
        "wraps_lists": True,
    }

    def __init__(self, target: ReviewTarget, token: SecretStr) -> None:
        super().__init__(target, token)
        self._comment_ids: dict[int, int] = {}
        """The id of the first comment of each thread."""

    @staticmethod
    def create_headers(token: str) -> Mapping[str, str]:
        """Return the headers of every request to Azure DevOps, with the token.

        A job's token and one of Microsoft Entra are JSON web tokens; a personal access token is the
        password of an empty user.
        """
        is_web_token = JSON_WEB_TOKEN.fullmatch(token)
        return {
            "Accept": "application/json",
            "Authorization": f"Bearer {token}"
            if is_web_token
            else format_basic_authorization(f":{token}"),
            "X-TFS-FedAuthRedirect": "Suppress",
            "User-Agent": "gpuform",
        }

    @property
    def comments_path(self) -> str:
        return f"{self._pull_request_path}/threads"

    def build_comment_path(self, comment: int) -> str:
        return f"{self.comments_path}/{comment}/comments/{self._comment_ids.get(comment, 1)}"

    def build_text(self, body: str) -> dict[str, Any]:
        return {"content": body}

    def build_new_comment(self, body: str) -> dict[str, Any]:
        comment = {"parentCommentId": 0, "content": body, "commentType": TEXT_COMMENT}
        return {"comments": [comment], "status": RESOLVED_STATUS}

    def create_author_check(self) -> Callable[[AzureThread], bool]:
        path = "/_apis/connectionData"
        version = {"api-version": "7.1-preview"}
        owner = self.client.get(AzureConnection, path, version).authenticated_user
        return lambda thread: bool(thread.comments) and thread.comments[0].author == owner

    def to_comment(self, item: AzureThread) -> Comment | None:
        """Convert a thread into the first comment, with the thread's id; None if deleted."""
        first = item.comments[0] if item.comments else None
        if first is None or first.is_deleted or item.is_deleted or first.comment_type == "system":
            return None
        self._comment_ids[item.id] = first.id
        return Comment(item.id, first.content)

    def set_label(self, added_label: str, removed_labels: tuple[str, ...]) -> None:
        """Remove the labels one by one, then add a label; a missing label is no error."""
        for name in removed_labels:
            with contextlib.suppress(NotFound):
                path = f"{self._pull_request_path}/labels/{quote(name, safe='')}"
                self.client.send("DELETE", path)
        self.client.send("POST", f"{self._pull_request_path}/labels", {"name": added_label})

    def set_status(self, status: ReviewStatus) -> None:
        """Set the status `gpuform` of the pull request, which a branch policy can require."""
        body = {
            "state": "failed" if status.is_failure else "succeeded",
            "description": status.description,
            "context": {"name": status.key, "genre": "gpuform"},
            **({"targetUrl": self.target.run_url} if self.target.run_url else {}),
        }
        self.client.send("POST", f"{self._pull_request_path}/statuses", body)

    @property
    def _pull_request_path(self) -> str:
        """Return the API path of the pull request, below the organization's address."""
        project, _, repository = self.target.repository.partition("/")
        path = f"/{quote(project)}/_apis/git/repositories/{quote(repository, safe='')}"
        return f"{path}/pullRequests/{self.target.pull_request}"
