"""Review plans on Bitbucket Cloud: comments of the pull request, and build statuses of its commit.

Endpoints (developer.atlassian.com/cloud/bitbucket/rest, 2.0): pullrequests, commit-statuses, users.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import Field

from gpuform.providers.errors import AuthError, NotFound, PermissionDenied
from gpuform.stacks.code_hosts.client import CodeHostModel
from gpuform.stacks.code_hosts.comment_api import CommentApi, format_basic_authorization
from gpuform.stacks.code_hosts.review_target import Comment, ReviewStatus


class BitbucketUser(CodeHostModel):
    uuid: str = ""
    type: str = ""


class BitbucketContent(CodeHostModel):
    raw: str | None = None


class BitbucketLink(CodeHostModel):
    href: str = ""


class BitbucketLinks(CodeHostModel):
    html: BitbucketLink = Field(default_factory=BitbucketLink)


class BitbucketComment(CodeHostModel):
    id: int
    content: BitbucketContent = Field(default_factory=BitbucketContent)
    user: BitbucketUser | None = None
    deleted: bool = False
    links: BitbucketLinks = Field(default_factory=BitbucketLinks)


class BitbucketCommit(CodeHostModel):
    hash: str


class BitbucketSource(CodeHostModel):
    commit: BitbucketCommit


class BitbucketPullRequest(CodeHostModel):
    source: BitbucketSource


class Bitbucket(CommentApi[BitbucketComment]):
    """A repository on Bitbucket Cloud, and one of its pull requests."""

    max_comment_length = 32_768
    renders_html = False
    item_type = BitbucketComment
    edit_method = "PUT"
    client_options: ClassVar = {"page_params": {"pagelen": "100"}, "wraps_lists": True}

    @staticmethod
    def create_headers(token: str) -> Mapping[str, str]:
        """Return the headers of every request to Bitbucket, with the token.

        An access token of a repository is sent as it is; an API token of a person is EMAIL:TOKEN.
        """
        return {
            "Accept": "application/json",
            "Authorization": format_basic_authorization(token)
            if ":" in token
            else f"Bearer {token}",
            "User-Agent": "gpuform",
        }

    @property
    def comments_path(self) -> str:
        return f"{self._pull_request_path}/comments"

    def build_text(self, body: str) -> dict[str, Any]:
        return {"content": {"raw": body}}

    def create_author_check(self) -> Callable[[BitbucketComment], bool]:
        """Return a function to recognize a comment by the token's owner.

        An access token of a repository may not read `/user`, and its owner is an app: then every
        app counts.
        """
        try:
            uuid = self.client.get(BitbucketUser, "/user").uuid
        except (AuthError, PermissionDenied, NotFound):
            return lambda comment: comment.user is not None and comment.user.type == "app_user"
        return lambda comment: comment.user is not None and comment.user.uuid == uuid

    def to_comment(self, item: BitbucketComment) -> Comment | None:
        """Convert a comment from Bitbucket's form; None for a deleted one, which stays listed."""
        return (
            None if item.deleted else Comment(item.id, item.content.raw or "", item.links.html.href)
        )

    def set_status(self, status: ReviewStatus) -> None:
        """Set the build status `gpuform` of the commit, with the URL Bitbucket requires."""
        page = f"https://bitbucket.org/{self.target.repository}/pull-requests"
        body = {
            "key": status.key,
            "name": status.key,
            "state": "FAILED" if status.is_failure else "SUCCESSFUL",
            "description": status.description,
            "url": self.target.run_url or f"{page}/{self.target.pull_request}",
        }
        path = f"{self._repository}/commit/{self.get_commit()}/statuses/build"
        self.client.send("POST", path, body)

    def fetch_head(self) -> str:
        return self.client.get(BitbucketPullRequest, self._pull_request_path).source.commit.hash

    @property
    def _pull_request_path(self) -> str:
        """Return the path of the pull request in Bitbucket's API."""
        return f"{self._repository}/pullrequests/{self.target.pull_request}"

    @property
    def _repository(self) -> str:
        """Return the path of the repository in Bitbucket's API."""
        return f"/repositories/{quote(self.target.repository)}"
