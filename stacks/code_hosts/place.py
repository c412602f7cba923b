"""Find the pull request that a plan is reviewed in: from flags, else from the variables of the CI
system.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

from pydantic import SecretStr

from gpuform.providers.errors import GpuformError, MissingCredentials

ForgeName: TypeAlias = Literal["github", "gitlab"]
FORGES: Final[tuple[ForgeName, ...]] = ("github", "gitlab")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says of a `place.Place`; None leaves it to the CI's variables."""

    forge: ForgeName | None = None
    url: str | None = None
    repository: str | None = None
    number: int | None = None


KEPT_PLAN: Final = "gpuform-plan"
"""The artifact, or the job, that keeps a pull request's plan for the apply."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment; ids grow with time."""

    id: int
    body: str
    url: str = ""


class Forge(Protocol):
    """One repository, and one pull request of it. Each method raises GpuformError."""

    longest_comment: int
    """In characters as `stacks.review.fitting.length` counts them."""

    def comments(self) -> Iterator[Comment]:
        """The comments that the token's owner has written, of all pages, the oldest first."""

    def add(self, body: str) -> Comment:
        """Writes a comment."""

    def edit(self, comment: int, body: str) -> Comment:
        """Writes another text into a comment. NotFound when it was deleted."""

    def remove(self, comment: int) -> None:
        """Deletes a comment. NotFound when it was deleted before."""

    def label(self, add: str, drop: tuple[str, ...]) -> None:
        """Gives the pull request one label and takes others away, whether it has them or not."""

    def reviewed_plan(self, commit: str, file: str) -> bytes:
        """The file of the plan that the pull request's last commit was reviewed with.

        Without a number it is the pull request by which `commit` came to its branch.
        """


_TOKENS: Final[Mapping[ForgeName, tuple[str, ...]]] = {
    "github": ("GITHUB_TOKEN", "GH_TOKEN"),
    "gitlab": ("GITLAB_TOKEN",),
}
_TOKEN_HINTS: Final[Mapping[ForgeName, str]] = {
    "github": "in GitHub Actions: `env: {GITHUB_TOKEN: ${{ github.token }}}`",
    "gitlab": "make a project access token with the scope `api` and the role Reporter, and a "
    "masked variable of it; GitLab's CI_JOB_TOKEN may write no comments",
}
_QUEUED: Final = re.compile(r"refs/heads/gh-readonly-queue/.+/pr-(\d+)-[0-9a-f]+")
_PULL: Final = re.compile(r"refs/pull/(\d+)/")


@dataclass(frozen=True, slots=True)
class ReviewPlace:
    """`api` is the address of the forge's REST API; `repository` is OWNER/NAME, in GitLab also an
    id; `number` is the pull request's, if there is one; `commit` its head's; `run_url` shows the
    job that is running.
    """

    forge: ForgeName
    api: str
    repository: str
    number: int | None
    commit: str = ""
    run_url: str = ""


def place_of(asked: Asked, environ: Mapping[str, str]) -> ReviewPlace:
    """Where this job's review is. Raises GpuformError that names the flag that is missing."""
    forge = asked.forge or _forge(environ)
    if forge is None:
        raise GpuformError(
            "it is not known which forge this is: neither GitHub Actions nor GitLab CI runs here",
            hint="say it: --forge github --repository OWNER/NAME --pull-request N",
        )
    found = _github(environ) if forge == "github" else _gitlab(environ)
    repository = asked.repository or found.repository
    if not repository:
        raise GpuformError(
            "it is not known which repository this is", hint="say it: --repository OWNER/NAME"
        )
    return ReviewPlace(
        forge=forge,
        api=(asked.url or found.api).rstrip("/"),
        repository=repository.strip("/"),
        number=found.number if asked.number is None else asked.number,
        commit=found.commit,
        run_url=found.run_url,
    )


def token_of(forge: ForgeName, environ: Mapping[str, str]) -> SecretStr:
    """The token in the environment. Raises MissingCredentials."""
    for name in _TOKENS[forge]:
        if token := environ.get(name, "").strip():
            if not re.fullmatch(r"[!-~]+", token):
                raise GpuformError(f"{name} is no token: it has characters that no token has")
            return SecretStr(token)
    raise MissingCredentials(
        f"there is no token: {' or '.join(_TOKENS[forge])} is not set",
        hint=_TOKEN_HINTS[forge],
        page="guides/review",
    )


def _forge(environ: Mapping[str, str]) -> ForgeName | None:
    if environ.get("GITHUB_ACTIONS"):
        return "github"
    return "gitlab" if environ.get("GITLAB_CI") else None


def _github(environ: Mapping[str, str]) -> ReviewPlace:
    event, repository = _event(environ), environ.get("GITHUB_REPOSITORY", "")
    pull = event.get("pull_request")
    head = pull.get("head", {}).get("sha") if isinstance(pull, dict) else None
    ref = environ.get("GITHUB_REF", "")
    named = _PULL.match(ref) or _QUEUED.fullmatch(ref)
    number = pull.get("number") if isinstance(pull, dict) else None
    run = environ.get("GITHUB_RUN_ID", "")
    server = environ.get("GITHUB_SERVER_URL") or "https://github.com"
    return ReviewPlace(
        forge="github",
        api=environ.get("GITHUB_API_URL") or "https://api.github.com",
        repository=repository,
        number=number if isinstance(number, int) else int(named[1]) if named else None,
        commit=head or environ.get("GITHUB_SHA", ""),
        run_url=f"{server}/{repository}/actions/runs/{run}" if run else "",
    )


def _event(environ: Mapping[str, str]) -> dict[str, Any]:
    """The event that started a workflow; nothing where its file cannot be read."""
    try:
        event = json.loads(Path(environ.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return event if isinstance(event, dict) else {}


def _gitlab(environ: Mapping[str, str]) -> ReviewPlace:
    number = environ.get("CI_MERGE_REQUEST_IID", "")
    return ReviewPlace(
        forge="gitlab",
        api=environ.get("CI_API_V4_URL") or "https://gitlab.com/api/v4",
        # A merge request from a fork runs in the fork, and is the other project's.
        repository=environ.get("CI_MERGE_REQUEST_PROJECT_ID") or environ.get("CI_PROJECT_ID", ""),
        number=int(number) if number.isdigit() else None,
        commit=environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA")
        or environ.get("CI_COMMIT_SHA", ""),
        run_url=environ.get("CI_JOB_URL", ""),
    )
