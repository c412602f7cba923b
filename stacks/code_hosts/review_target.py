"""Find the pull request that a plan is reviewed in: from flags, else from the variables of the CI.

The commands `review`, `fetch-plan` and `new ci` call this module. `posting` opens the code host.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias
from urllib.parse import quote

from pydantic import SecretStr

from gpuform.providers.errors import GpuformError, MissingCredentials

CodeHostName: TypeAlias = Literal["github", "gitlab", "azure", "bitbucket"]
CODE_HOSTS: Final[tuple[CodeHostName, ...]] = ("github", "gitlab", "azure", "bitbucket")
WORKFLOW_HOSTS: Final[tuple[CodeHostName, ...]] = ("github", "gitlab")
"""The code hosts for which `gpuform new ci` writes workflows."""


@dataclass(frozen=True, slots=True)
class ReviewFlags:
    """The pull request of a review as the flags of a command name it.

    None leaves a value to the CI's variables.
    """

    code_host: CodeHostName | None = None
    url: str | None = None
    repository: str | None = None
    pull_request: int | None = None


PLAN_ARTIFACT: Final = "gpuform-plan"
"""The artifact (GitHub) or job (GitLab) that stores a pull request's plan for the apply."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment of a pull request. Ids grow with time."""

    id: int
    body: str
    url: str = ""


@dataclass(frozen=True, slots=True)
class ReviewStatus:
    """The status of a commit or a pull request: its name, one line of text, and the result."""

    key: str
    description: str
    is_failure: bool


class CodeHost(Protocol):
    """A repository on a code host, and one pull request of the repository.

    Each method raises GpuformError.
    """

    max_comment_length: int
    """The longest comment, in characters as `stacks.review.fitting.length` counts them."""
    renders_html: bool
    """True if a comment may have HTML, such as folded sections and invisible HTML comments."""

    def list_comments(self) -> Iterator[Comment]:
        """Yield the comments of the token's owner, from all pages, the oldest first."""

    def add_comment(self, body: str) -> Comment:
        """Add a comment to the pull request, and return it."""

    def edit_comment(self, comment: int, body: str) -> None:
        """Replace the text of a comment. Raises NotFound if the comment was deleted."""

    def delete_comment(self, comment: int) -> None:
        """Delete a comment. Raises NotFound if the comment was deleted before."""

    def set_label(self, added_label: str, removed_labels: tuple[str, ...]) -> None:
        """Add one label to the pull request and remove others. A missing label is no error."""

    def set_status(self, status: ReviewStatus) -> None:
        """Set the status of the pull request or of the last commit."""

    def fetch_reviewed_plan(self, commit: str, file_name: str, job: str = PLAN_ARTIFACT) -> bytes:
        """Return the plan file `file_name`, as reviewed at the pull request's last commit.

        `job` is the name of the job or of the artifact that stores it.

        If the number of the pull request is unknown, it is the pull request that brought `commit`
        to its branch.
        """


CODE_HOST_NAMES: Final[Mapping[CodeHostName, str]] = {
    "github": "GitHub",
    "gitlab": "GitLab",
    "azure": "Azure DevOps",
    "bitbucket": "Bitbucket",
}
TOKEN_VARIABLES: Final[Mapping[CodeHostName, tuple[str, ...]]] = {
    "github": ("GITHUB_TOKEN", "GH_TOKEN"),
    "gitlab": ("GITLAB_TOKEN",),
    "azure": ("SYSTEM_ACCESSTOKEN", "AZURE_DEVOPS_EXT_PAT"),
    "bitbucket": ("BITBUCKET_TOKEN",),
}
TOKEN_HINTS: Final[Mapping[CodeHostName, str]] = {
    "github": "in GitHub Actions: `env: {GITHUB_TOKEN: ${{ github.token }}}`",
    "gitlab": "create a project access token with the scope `api` and the role Reporter, and store "
    "it in a masked CI variable; GitLab's CI_JOB_TOKEN cannot write comments",
    "azure": "in Azure Pipelines: `env: {SYSTEM_ACCESSTOKEN: $(System.AccessToken)}`; the build "
    "service needs the permission `Contribute to pull requests` of the repository",
    "bitbucket": "create a repository access token with the scope `pullrequest:write`, and store "
    "it in a secured variable of the repository",
}
MERGE_QUEUE_REF: Final = re.compile(r"refs/heads/gh-readonly-queue/.+/pr-(\d+)-[0-9a-f]+")
_BRANCH_PREFIX: Final = "refs/heads/"
PULL_REQUEST_REF: Final = re.compile(r"refs/pull/(\d+)/")


@dataclass(frozen=True, slots=True)
class ReviewTarget:
    """The pull request that a plan is reviewed in.

    Attributes:
        api_url: address of the code host's REST API.
        repository: OWNER/NAME; in GitLab also a numeric id, in Azure DevOps PROJECT/NAME.
        pull_request: number of the pull request, or None.
        commit: last commit of the pull request.
        run_url: page of the running CI job.
        branch: the branch of a job that belongs to no pull request.
        pushed_commits: the commits of the push that started the job; empty where they are unknown.
    """

    code_host: CodeHostName
    api_url: str
    repository: str
    pull_request: int | None
    commit: str = ""
    run_url: str = ""
    branch: str = ""
    pushed_commits: frozenset[str] = frozenset()


def find_review_target(flags: ReviewFlags, environ: Mapping[str, str]) -> ReviewTarget:
    """Return the pull request of this job's review, from flags, or else from the CI's variables.

    `pull_request` is None if neither has a number. Raises GpuformError with the name of another
    missing flag.
    """
    code_host = flags.code_host or _detect_code_host(environ)
    if code_host is None:
        raise GpuformError(
            "the code host is unknown: no CI of GitHub, GitLab, Azure DevOps or Bitbucket runs "
            "this command",
            hint="pass it: --forge github --repository OWNER/NAME --pull-request N",
        )
    detected = _VARIABLE_READERS[code_host](environ)
    repository = flags.repository or detected.repository
    if not repository:
        raise GpuformError(
            "the repository is unknown: the variables of the CI do not name it",
            hint="pass it: --repository OWNER/NAME",
        )
    api_url = flags.url or detected.api_url
    # Only Azure DevOps has no address for all: each organization has its own.
    if not api_url or (code_host == "azure" and repository.count("/") != 1):
        raise GpuformError(
            f"{CODE_HOST_NAMES[code_host]}: the organization, the project or the repository is "
            "unknown",
            hint="pass them: --forge-url https://dev.azure.com/ORGANIZATION --repository "
            "PROJECT/NAME",
        )
    return ReviewTarget(
        code_host=code_host,
        api_url=api_url.rstrip("/"),
        repository=repository.strip("/"),
        pull_request=detected.pull_request if flags.pull_request is None else flags.pull_request,
        commit=detected.commit,
        run_url=detected.run_url,
        branch=detected.branch,
        pushed_commits=detected.pushed_commits,
    )


def read_token(code_host: CodeHostName, environ: Mapping[str, str]) -> SecretStr:
    """Return the code host's token from the environment.

    Raises MissingCredentials without a token, and GpuformError for one with invalid characters.
    """
    for variable in TOKEN_VARIABLES[code_host]:
        if token := environ.get(variable, "").strip():
            # An HTTP header cannot carry other characters.
            if not re.fullmatch(r"[!-~]+", token):
                raise GpuformError(
                    f"{variable} is not a valid token: it contains a space, a line break or a "
                    "character outside of ASCII",
                    hint=f"set {variable} to the token alone",
                )
            return SecretStr(token)
    raise MissingCredentials(
        f"the token for {CODE_HOST_NAMES[code_host]} is missing. Set "
        f"{' or '.join(TOKEN_VARIABLES[code_host])}",
        hint=TOKEN_HINTS[code_host],
        page="guides/review",
    )


def _detect_code_host(environ: Mapping[str, str]) -> CodeHostName | None:
    """Return the code host whose CI runs this process, or None outside of known CI."""
    if environ.get("GITHUB_ACTIONS"):
        return "github"
    if environ.get("GITLAB_CI"):
        return "gitlab"
    # Azure Pipelines also builds repositories of GitHub and Bitbucket.
    if environ.get("TF_BUILD") and environ.get("BUILD_REPOSITORY_PROVIDER") == "TfsGit":
        return "azure"
    return "bitbucket" if environ.get("BITBUCKET_COMMIT") else None


def _read_github_variables(environ: Mapping[str, str]) -> ReviewTarget:
    """Return the pull request in the variables and the event of GitHub Actions.

    `pull_request` is None where neither the event nor the ref names one. Other unknown values are
    empty.
    """
    trigger, repository = _read_github_event(environ), environ.get("GITHUB_REPOSITORY", "")
    pull_request = trigger.get("pull_request")
    head_commit = (
        pull_request.get("head", {}).get("sha") if isinstance(pull_request, dict) else None
    )
    # A merge queue has no event of a pull request: the name of its branch has the number.
    ref = environ.get("GITHUB_REF", "")
    matched_ref = PULL_REQUEST_REF.match(ref) or MERGE_QUEUE_REF.fullmatch(ref)
    number = pull_request.get("number") if isinstance(pull_request, dict) else None
    is_branch = ref.startswith(_BRANCH_PREFIX) and matched_ref is None
    run_id = environ.get("GITHUB_RUN_ID", "")
    server = environ.get("GITHUB_SERVER_URL") or "https://github.com"
    return ReviewTarget(
        code_host="github",
        api_url=environ.get("GITHUB_API_URL") or "https://api.github.com",
        repository=repository,
        pull_request=number
        if isinstance(number, int)
        else int(matched_ref[1])
        if matched_ref
        else None,
        commit=head_commit or environ.get("GITHUB_SHA", ""),
        run_url=f"{server}/{repository}/actions/runs/{run_id}" if run_id else "",
        branch=ref.removeprefix(_BRANCH_PREFIX) if is_branch else "",
        pushed_commits=frozenset(
            str(commit.get("id"))
            for commit in trigger.get("commits") or ()
            if isinstance(commit, dict)
        ),
    )


def _read_github_event(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the event behind the GitHub workflow, or {} without a readable file."""
    try:
        event = json.loads(Path(environ.get("GITHUB_EVENT_PATH", "")).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return event if isinstance(event, dict) else {}


def _read_gitlab_variables(environ: Mapping[str, str]) -> ReviewTarget:
    """Return the merge request in GitLab CI's variables.

    `pull_request` is None outside of a merge request pipeline. Other unknown values are empty.
    """
    number = environ.get("CI_MERGE_REQUEST_IID", "")
    return ReviewTarget(
        code_host="gitlab",
        api_url=environ.get("CI_API_V4_URL") or "https://gitlab.com/api/v4",
        # A merge request from a fork runs in the fork, and is the other project's.
        repository=environ.get("CI_MERGE_REQUEST_PROJECT_ID") or environ.get("CI_PROJECT_ID", ""),
        pull_request=int(number) if number.isdigit() else None,
        commit=environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA")
        or environ.get("CI_COMMIT_SHA", ""),
        run_url=environ.get("CI_JOB_URL", ""),
        branch=environ.get("CI_COMMIT_BRANCH", ""),
    )


def _read_azure_variables(environ: Mapping[str, str]) -> ReviewTarget:
    """Return the pull request in the variables of Azure Pipelines.

    `pull_request` is None outside of a build of a pull request. Other unknown values are empty
    (learn.microsoft.com/azure/devops/pipelines/build/variables).
    """
    number = environ.get("SYSTEM_PULLREQUEST_PULLREQUESTID", "")
    organization_url = environ.get("SYSTEM_COLLECTIONURI", "").rstrip("/")
    project = environ.get("SYSTEM_TEAMPROJECT", "")
    repository = environ.get("BUILD_REPOSITORY_NAME", "")
    build_id = environ.get("BUILD_BUILDID", "")
    run_page = f"{organization_url}/{quote(project)}/_build/results?buildId={build_id}"
    return ReviewTarget(
        code_host="azure",
        api_url=organization_url,
        repository=f"{project}/{repository}" if project and repository else "",
        pull_request=int(number) if number.isdigit() else None,
        commit=environ.get("SYSTEM_PULLREQUEST_SOURCECOMMITID")
        or environ.get("BUILD_SOURCEVERSION", ""),
        run_url=run_page if build_id and organization_url else "",
    )


def _read_bitbucket_variables(environ: Mapping[str, str]) -> ReviewTarget:
    """Return the pull request in the variables of Bitbucket Pipelines.

    `pull_request` is None outside of a pipeline of a pull request. Other unknown values are empty
    (support.atlassian.com/bitbucket-cloud/docs/variables-and-secrets).
    """
    number = environ.get("BITBUCKET_PR_ID", "")
    repository = environ.get("BITBUCKET_REPO_FULL_NAME", "")
    build_number = environ.get("BITBUCKET_BUILD_NUMBER", "")
    run_page = f"https://bitbucket.org/{repository}/pipelines/results/{build_number}"
    return ReviewTarget(
        code_host="bitbucket",
        api_url="https://api.bitbucket.org/2.0",
        repository=repository,
        pull_request=int(number) if number.isdigit() else None,
        commit=environ.get("BITBUCKET_COMMIT", ""),
        run_url=run_page if build_number and repository else "",
    )


_VARIABLE_READERS: Final[Mapping[CodeHostName, Callable[[Mapping[str, str]], ReviewTarget]]] = {
    "github": _read_github_variables,
    "gitlab": _read_gitlab_variables,
    "azure": _read_azure_variables,
    "bitbucket": _read_bitbucket_variables,
}
