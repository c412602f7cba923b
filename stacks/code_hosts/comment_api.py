"""List and write the comments of a pull request, by the paths and forms of one code host.

The classes of code hosts (`github`, `gitlab`, `azure_devops`, `bitbucket`) inherit from
`CommentApi`, which sends its requests through a `CodeHostClient`.
"""

import base64
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import SecretStr

from gpuform.providers.errors import GpuformError
from gpuform.stacks.code_hosts.client import CodeHostClient, CodeHostModel
from gpuform.stacks.code_hosts.review_target import (
    CODE_HOST_NAMES,
    PLAN_ARTIFACT,
    Comment,
    ReviewStatus,
    ReviewTarget,
)

Item = TypeVar("Item", bound=CodeHostModel)
"""A comment as a code host answers it."""


class CommentApi(ABC, Generic[Item]):
    """The comments of one pull request. Subclasses say only what differs between code hosts.

    Attributes:
        item_type: the model of a comment in the code host's answers.
        edit_method: the HTTP method that replaces the text of a comment.
        list_params: the query of the list of comments.
        client_options: what the code host's lists and requests look like, for `CodeHostClient`.
    """

    max_comment_length: int
    renders_html: bool = True
    item_type: type[Item]
    edit_method: ClassVar[str] = "PATCH"
    list_params: ClassVar[Mapping[str, str]] = {}
    client_options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, target: ReviewTarget, token: SecretStr) -> None:
        self.name = CODE_HOST_NAMES[target.code_host]
        self.client = CodeHostClient(
            self.name,
            target.api_url,
            token=token,
            headers=self.create_headers,
            **self.client_options,
        )
        self.target = target

    def list_comments(self) -> Iterator[Comment]:
        """Yield the token owner's comments on the pull request, the oldest first."""
        is_author = self.create_author_check()
        for item in self.client.iterate_items(self.item_type, self.comments_path, self.list_params):
            # The stamp of somebody else's comment could be forged.
            if is_author(item) and (comment := self.to_comment(item)) is not None:
                yield comment

    def add_comment(self, body: str) -> Comment:
        """Add a comment to the pull request, and return it."""
        new_comment = self.build_new_comment(body)
        item = self.client.write(self.item_type, "POST", self.comments_path, new_comment)
        comment = self.to_comment(item)
        if comment is None:
            raise GpuformError(f"{self.name}: the new comment is not a comment in the answer")
        return comment

    def edit_comment(self, comment: int, body: str) -> None:
        """Replace the text of a comment. Raises NotFound if the comment was deleted."""
        self.client.send(self.edit_method, self.build_comment_path(comment), self.build_text(body))

    def delete_comment(self, comment: int) -> None:
        """Delete a comment. Raises NotFound if the comment was deleted before."""
        self.client.send("DELETE", self.build_comment_path(comment))

    def set_label(self, added_label: str, removed_labels: tuple[str, ...]) -> None:  # noqa: ARG002 - for subclasses
        """Raise GpuformError, unless overridden: the pull requests have no labels."""
        raise GpuformError(
            f"{self.name}: pull requests have no labels", hint="use --status instead of --label"
        )

    def fetch_reviewed_plan(
        self,
        commit: str,  # noqa: ARG002 - for subclasses
        file_name: str,  # noqa: ARG002 - as above
        job: str = PLAN_ARTIFACT,  # noqa: ARG002 - as above
    ) -> bytes:
        """Raise GpuformError, unless overridden: no job of another pipeline gives its files."""
        raise GpuformError(
            f"{self.name}: gpuform cannot download the plan of a pull request",
            hint="plan and apply in one pipeline, which passes the plan on as an artifact: "
            "gpuform help guides/other-ci",
        )

    def get_commit(self) -> str:
        """Return the last commit of the pull request, from the CI's variables or the code host."""
        return self.target.commit or self.fetch_head()

    def fetch_head(self) -> str:
        """Return the last commit of the pull request on the code host."""
        raise NotImplementedError

    def build_comment_path(self, comment: int) -> str:
        """Return the path of one comment: below the path of all comments, unless overridden."""
        return f"{self.comments_path}/{comment}"

    def build_text(self, body: str) -> dict[str, Any]:
        """Return the request body to replace the text of a comment."""
        return {"body": body}

    def build_new_comment(self, body: str) -> dict[str, Any]:
        """Return the request body to add a comment: as for an edit, unless overridden."""
        return self.build_text(body)

    @abstractmethod
    def set_status(self, status: ReviewStatus) -> None:
        """Set the status of the pull request or of the last commit."""

    @staticmethod
    @abstractmethod
    def create_headers(token: str) -> Mapping[str, str]:
        """Return the headers of every request, with the token."""

    @property
    @abstractmethod
    def comments_path(self) -> str:
        """Return the path of the pull request's comments, below the address of the API."""

    @abstractmethod
    def create_author_check(self) -> Callable[[Item], bool]:
        """Return a function to recognize a comment by the token's owner."""

    @abstractmethod
    def to_comment(self, item: Item) -> Comment | None:
        """Convert a comment from the code host's form; None for a deleted or a system comment."""


def format_basic_authorization(credentials: str) -> str:
    """Return the header value `Basic ...` for credentials `USER:PASSWORD`."""
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"
