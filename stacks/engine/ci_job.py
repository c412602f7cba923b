"""Read the CI job and the git commit that a command runs in, and names of git revisions.

`stack.workspace.Origin` calls this module for the stack's history, gates of a base branch and
filters of stacks for branches. CI systems have Pulumi's names.
"""

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Final

from gpuform.providers.context import get_run_context
from gpuform.schemas.errors import EngineError

_OFF: Final = "PULUMI_DISABLE_CI_DETECTION"
_SYSTEM_NAME: Final = "PULUMI_CI_SYSTEM"
_PULL_REQUEST: Final = re.compile(r"refs/pull/(\d+)/")

_WORKFLOW_TEXT: Final = re.compile(r"[A-Za-z0-9_./ -]+")


def require_workflow_text(label: str, text: str) -> None:
    """Raise EngineError unless YAML and shells of a workflow read the text as it is."""
    if not _WORKFLOW_TEXT.fullmatch(text):
        raise EngineError(
            f"the {label} {text!r} cannot be written into a workflow",
            hint="use letters, digits, spaces, hyphens, underscores, dots and slashes",
        )


@dataclass(frozen=True, slots=True)
class CiJob:
    """A job of a CI system. A fact that the system does not give is empty.

    `build_number` counts within a repository, `build_id` within the system; `branch` may be a full
    reference; `user` started the job.
    """

    system: str
    build_id: str = ""
    build_number: str = ""
    build_type: str = ""
    build_url: str = ""
    job: str = ""
    sha: str = ""
    branch: str = ""
    message: str = ""
    pull_request: str = ""
    user: str = ""


@dataclass(frozen=True, slots=True)
class _System:
    """A CI system: its name, the variable that marks its jobs, and the variables of the facts."""

    name: str
    marker: str
    facts: Mapping[str, str]


# Each fact is a template over the job's variables; a fact with a missing variable is left out.
_SYSTEMS: Final = (
    _System(
        "GitHub Actions",
        "GITHUB_ACTIONS",
        {
            "build_id": "$GITHUB_RUN_ID",
            "build_number": "$GITHUB_RUN_NUMBER",
            "build_type": "$GITHUB_EVENT_NAME",
            "build_url": "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY/actions/runs/$GITHUB_RUN_ID",
            "job": "$GITHUB_JOB",
            "sha": "$GITHUB_SHA",
            "branch": "$GITHUB_REF",
            "user": "$GITHUB_ACTOR",
        },
    ),
    _System(
        "GitLab CI/CD",
        "GITLAB_CI",
        {
            "build_id": "$CI_PIPELINE_ID",
            "build_number": "$CI_PIPELINE_IID",
            "build_type": "$CI_PIPELINE_SOURCE",
            "build_url": "$CI_JOB_URL",
            "job": "$CI_JOB_NAME",
            "sha": "$CI_COMMIT_SHA",
            "branch": "$CI_COMMIT_REF_NAME",
            "message": "$CI_COMMIT_MESSAGE",
            "pull_request": "$CI_MERGE_REQUEST_IID",
            "user": "$GITLAB_USER_LOGIN",
        },
    ),
    _System(
        "Azure Pipelines",
        "TF_BUILD",
        {
            "build_id": "$BUILD_BUILDID",
            "build_number": "$BUILD_BUILDNUMBER",
            "build_type": "$BUILD_REASON",
            "build_url": "${SYSTEM_COLLECTIONURI}$SYSTEM_TEAMPROJECT/_build/results"
            "?buildId=$BUILD_BUILDID",
            "job": "$SYSTEM_JOBDISPLAYNAME",
            "sha": "$BUILD_SOURCEVERSION",
            "branch": "$BUILD_SOURCEBRANCH",
            "message": "$BUILD_SOURCEVERSIONMESSAGE",
            "pull_request": "$SYSTEM_PULLREQUEST_PULLREQUESTNUMBER",
            "user": "$BUILD_REQUESTEDFOR",
        },
    ),
    _System(
        "Jenkins",
        "JENKINS_URL",
        {
            "build_id": "$BUILD_NUMBER",
            "build_url": "$BUILD_URL",
            "job": "$JOB_NAME",
            "sha": "$GIT_COMMIT",
            "branch": "$GIT_BRANCH",
            "user": "$BUILD_USER_ID",
        },
    ),
    _System(
        "Buildkite",
        "BUILDKITE",
        {
            "build_id": "$BUILDKITE_BUILD_ID",
            "build_number": "$BUILDKITE_BUILD_NUMBER",
            "build_type": "$BUILDKITE_SOURCE",
            "build_url": "$BUILDKITE_BUILD_URL",
            "job": "$BUILDKITE_LABEL",
            "sha": "$BUILDKITE_COMMIT",
            "branch": "$BUILDKITE_BRANCH",
            "message": "$BUILDKITE_MESSAGE",
            "user": "$BUILDKITE_BUILD_CREATOR",
        },
    ),
    _System(
        "CircleCI",
        "CIRCLECI",
        {
            "build_id": "$CIRCLE_BUILD_NUM",
            "build_url": "$CIRCLE_BUILD_URL",
            "job": "$CIRCLE_JOB",
            "sha": "$CIRCLE_SHA1",
            "branch": "$CIRCLE_BRANCH",
            "user": "$CIRCLE_USERNAME",
        },
    ),
    _System(
        "Atlassian Bitbucket Pipelines",
        "BITBUCKET_COMMIT",
        {
            "build_number": "$BITBUCKET_BUILD_NUMBER",
            "sha": "$BITBUCKET_COMMIT",
            "branch": "$BITBUCKET_BRANCH",
            "pull_request": "$BITBUCKET_PR_ID",
        },
    ),
    _System("Travis CI", "TRAVIS", {"build_id": "$TRAVIS_JOB_ID", "branch": "$TRAVIS_BRANCH"}),
)

# The variables that Pulumi defines for CI systems that it does not know.
_GENERIC: Final = {
    "build_id": "$PULUMI_CI_BUILD_ID",
    "build_number": "$PULUMI_CI_BUILD_NUMBER",
    "build_type": "$PULUMI_CI_BUILD_TYPE",
    "build_url": "$PULUMI_CI_BUILD_URL",
    "sha": "$PULUMI_CI_PULL_REQUEST_SHA",
    "branch": "$PULUMI_CI_BRANCH_NAME",
    "message": "$PULUMI_COMMIT_MESSAGE",
    "pull_request": "$PULUMI_PR_NUMBER",
}


def find_ci_job(environ: Mapping[str, str]) -> CiJob | None:
    """Return the CI job of a process, found in the environment variables; None outside of CI.

    PULUMI_CI_SYSTEM names a system that gpuform does not know; a process that only sets CI to 1 or
    true is a job without facts. PULUMI_DISABLE_CI_DETECTION turns the detection off.
    """
    if environ.get(_OFF):
        return None
    set_variables = {name: value for name, value in environ.items() if value}
    for system in _SYSTEMS:
        if system.marker in set_variables:
            return _build_job(system.name, system.facts, set_variables)
    if name := set_variables.get(_SYSTEM_NAME):
        return _build_job(name, _GENERIC, set_variables)
    return CiJob("CI") if set_variables.get("CI", "").lower() in ("1", "true") else None


def list_ci_variables() -> dict[str, tuple[str, ...]]:
    """Return the environment variables with facts about a job, by name of CI system.

    The first one marks the jobs of that system.
    """
    systems = {system.name: (system.marker, system.facts) for system in _SYSTEMS}
    systems["another system"] = (_SYSTEM_NAME, _GENERIC)
    return {
        name: tuple(dict.fromkeys([marker, *re.findall(r"\$(\w+)", " ".join(facts.values()))]))
        for name, (marker, facts) in systems.items()
    }


def _build_job(system: str, templates: Mapping[str, str], variables: Mapping[str, str]) -> CiJob:
    """Build the job with the facts of the templates; a fact with an unset variable is empty."""
    facts = {name: _fill_template(template, variables) for name, template in templates.items()}
    # GitHub's ref of a pull request contains its number.
    merged = _PULL_REQUEST.match(facts.get("branch", ""))
    if merged and not facts.get("pull_request"):
        facts["pull_request"] = merged[1]
    return CiJob(system, **facts)


def _fill_template(template: str, variables: Mapping[str, str]) -> str:
    """Fill a template of a CI fact with variables; empty if a variable is missing."""
    try:
        return Template(template).substitute(variables)
    except KeyError:
        return ""


GIT: Final = ("git", "-c", "safe.bareRepository=explicit")
"""The first arguments of each git command in a folder that a change may have written.

A change can hold the files of a bare repository, with other branches and commands to run. git would
find it before the repository around it, and now fails.
"""
_TIMEOUT: Final = 10.0
"""How many seconds a git command may take: the history is not worth more."""

# Files that runs write are no change of the program.
_RUN_FOLDERS: Final = (".pulumi", ".gpuform")
_REMOTE: Final = re.compile(
    r"(?:(?:https?|ssh|git)://(?:[^/]*@)?|[^/@:]+@)(?P<host>[^/:@]+)(?::\d+(?=/))?[/:]"
    r"(?P<owner>[^@]+)/(?P<repo>[^/@]+?)(?:\.git)?/?"
)


def read_commit(folder: Path) -> str:
    """Return the commit checked out in the folder; empty without git."""
    return read_git_facts(folder)[1].get("git.head", "")


def read_git_facts(folder: Path) -> tuple[str, dict[str, str]]:
    """Return the commit's title, and facts under the names of Pulumi's history.

    Both are empty without git, outside of a repository and before the first commit. A remote
    appears as host, owner and name: its URL may hold a key.
    """
    log_output = _run_git(
        # A configured `log.showSignature` would print further lines before these.
        folder,
        "log",
        "-1",
        "--no-show-signature",
        "--format=%H%n%cn%n%ce%n%an%n%ae%n%s",
    )
    if log_output is None:
        return "", {}
    head, committer, committer_email, author, author_email, title = log_output.split("\n")[:6]
    facts = {
        "git.head": head,
        "git.committer": committer,
        "git.committer.email": committer_email,
        "git.author": author,
        "git.author.email": author_email,
        **_read_branch(folder),
        **_read_remote(folder),
    }
    excluded = [f":(exclude,top,glob)**/{name}/**" for name in _RUN_FOLDERS]
    status = _run_git(folder, "status", "--porcelain", "--", ":/", *excluded)
    if status is not None:
        facts["git.dirty"] = "true" if status.strip() else "false"
    return title, facts


def _read_branch(folder: Path) -> dict[str, str]:
    """Return the full name of the branch, if any, and the folder's path in the repository.

    A detached head has no branch.
    """
    output = _run_git(folder, "rev-parse", "--show-prefix", "--symbolic-full-name", "HEAD")
    prefix, name = (output or "\n").split("\n")[:2]
    facts = {"vcs.root": prefix.rstrip("/") or "."} if output else {}
    return facts | ({"git.headName": name} if name not in ("", "HEAD") else {})


def _read_remote(folder: Path) -> dict[str, str]:
    """Return host, owner and name of the remote `origin`, or nothing for another form of URL."""
    url = _run_git(folder, "remote", "get-url", "origin")
    match = _REMOTE.fullmatch((url or "").strip())
    if match is None:
        return {}
    return {"vcs.kind": match["host"], "vcs.owner": match["owner"], "vcs.repo": match["repo"]}


def _run_git(folder: Path, *arguments: str) -> str | None:
    """Run git and return the output; None if git fails, is missing or times out."""
    try:
        completed = subprocess.run(  # noqa: S603 - fixed arguments
            [*GIT, "-C", str(folder), *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=_TIMEOUT,
            # Without optional locks, a git command of the user is not disturbed.
            env={**get_run_context().environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return completed.stdout.decode(errors="replace") if completed.returncode == 0 else None


_REVISION: Final = re.compile(r"[^~^:]+?(?=@\{|[~^:]|\Z)")
_COMMIT_ID: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_BRANCHES: Final = ("refs/remotes/", "refs/heads/")


def prefer_branch(revision: str, list_refs: Callable[[str], str]) -> str:
    """Return `revision` with the full name of the branch, or unchanged if `revision` is no branch.

    git prefers a tag to a branch of the same name, and a local branch to one of a remote. Whoever
    may push a tag `origin/main` would choose the gates that judge their change. A complete id of a
    commit names the commit, as for git, also if a branch has this name.

    Args:
        revision: a branch, or another revision of git: `origin/main`, `v1`, `main~2`.
        list_refs: returns the full names of refs that git lists for a pattern, one a line.
    """
    match = _REVISION.match(revision)
    name = "" if match is None or _COMMIT_ID.fullmatch(match[0]) else match[0]
    for prefix in _BRANCHES if name else ():
        if f"{prefix}{name}" in list_refs(f"{prefix}{name}").splitlines():
            return f"{prefix}{revision}"
    return revision
