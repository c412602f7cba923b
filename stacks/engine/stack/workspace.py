"""Read and write the selected stack as the Pulumi CLI does, and describe a run's origin.

`Workspace` and the history call this module. The file has a stack for each backend, under the
backend's URL as configured. CLIs before 3.256 had one stack for all backends; their selection
counts where there is no newer one. Facts about the origin have Pulumi's names, which its CLI shows;
a fact without a name of Pulumi's begins with `gpuform.`.
"""

import hashlib
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.ci_job import CiJob, find_ci_job, read_git_facts
from gpuform.stacks.engine.machine import read_cli_version, replace_file
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.store import build_full_name, get_configured_url, get_user
from gpuform.stacks.engine.value_json import load

_BY_BACKEND = (3, 256)
"""The first Pulumi CLI that keeps a selection for each backend."""

# `config` comes from Pulumi CLIs before 1.0, and gpuform does not read it.
_KEYS = {"stack", "stacks", "config"}


class StackNotFound(EngineError):
    """The stack does not exist, or no stack is selected."""

    help_page = "concepts/stack"
    exit_code = 6


def get_short_name(project: Project, name: str) -> str:
    """Return the stack's name within the project.

    `name` may be complete: organization/STACK or organization/PROJECT/STACK.

    Raises:
        StackNotFound: the stack belongs to another project.
    """
    *owner, short = name.split("/")
    if owner and owner not in (["organization"], ["organization", project.name]):
        renamed = f", or write `name: {owner[1]}` in Pulumi.yaml" if len(owner) == 2 else ""
        raise StackNotFound(
            f"stack '{name}' does not belong to this project, {project.name}",
            hint="pass a stack of this project with --stack NAME, or select one with `gpuform "
            f"stack select NAME`{renamed}",
        )
    return short


def find_selected_stack(project: Project, environ: Mapping[str, str]) -> str | None:
    """Return the selected stack's short name: PULUMI_STACK, else the stored selection, else None.

    With an empty PULUMI_STACK no stack is selected.

    Raises:
        StackNotFound: the stack belongs to another project.
        EngineError: the file cannot be read.
    """
    stack_setting = environ.get("PULUMI_STACK")
    if stack_setting is not None:
        return get_short_name(project, stack_setting) if stack_setting else None
    return _find_selection(_read_settings(_get_settings_path(project, environ)), project, environ)


def select_stack(
    project: Project,
    stack: str | None,
    environ: Mapping[str, str],
    *,
    project_of_stack: str | None = None,
) -> None:
    """Select a stack for this project's folder and backend; None clears the selection.

    Args:
        project: the project.
        stack: the stack's name, or None.
        environ: the environment variables.
        project_of_stack: the stack's project, if Pulumi.yaml does not name that one yet.

    Raises:
        EngineError: the file cannot be read or written, and stays as it is.
    """
    path = _get_settings_path(project, environ)
    settings = _read_settings(path)
    name = None if stack is None else build_full_name(project_of_stack or project.name, stack)
    by_backend = settings.setdefault("stacks", {})
    if name is None:
        by_backend.pop(get_configured_url(environ, project), None)
        settings.pop("stack", None)
    # The Pulumi CLI keeps a selection for each backend since `_BY_BACKEND`.
    elif by_backend or (read_cli_version(environ) or _BY_BACKEND) >= _BY_BACKEND:
        by_backend[get_configured_url(environ, project)] = name
    else:
        settings["stack"] = name
    if not by_backend:
        del settings["stacks"]
    try:
        if settings:
            replace_file(path, json.dumps(settings, indent=4, sort_keys=True).encode())
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise EngineError(
            f"cannot save the selected stack in {path}: {error.strerror}",
            hint="Pass the stack with --stack, or set PULUMI_HOME to a writable folder.",
        ) from error


def unselect_stack(project: Project, stack: str, environ: Mapping[str, str]) -> None:
    """Clear the project's selection if `stack` is selected."""
    if (
        _find_selection(_read_settings(_get_settings_path(project, environ)), project, environ)
        == stack
    ):
        select_stack(project, None, environ)


def check_selectable(project: Project, environ: Mapping[str, str]) -> None:
    """Raise EngineError if the file with the selection cannot be read."""
    _read_settings(_get_settings_path(project, environ))


def _find_selection(
    settings: Mapping[str, Any], project: Project, environ: Mapping[str, str]
) -> str | None:
    """Return the short name of the stack selected for the backend, or None.

    Raises StackNotFound for another project's stack, unless an old CLI selected it for all
    backends: then the result is None.
    """
    name = settings.get("stacks", {}).get(get_configured_url(environ, project))
    if name is not None:
        return get_short_name(project, name)
    for_all = settings.get("stack")
    try:
        return get_short_name(project, for_all) if for_all else None
    except StackNotFound:
        # Selected by an old CLI for another backend, in which the project has another name.
        return None


def _get_settings_path(project: Project, environ: Mapping[str, str]) -> Path:
    """Return Pulumi's file for the project, whose name has the SHA-1 of the path of Pulumi.yaml."""
    home = environ.get("PULUMI_HOME")
    folder = Path(home) if home else Path.home() / ".pulumi"
    path_hash = hashlib.sha1(str(project.path).encode(), usedforsecurity=False).hexdigest()
    return folder / "workspaces" / f"{project.name}-{path_hash}-workspace.json"


def _read_settings(path: Path) -> dict[str, Any]:
    """Return the workspace's settings, empty without a file.

    Raises:
        EngineError: the file cannot be read, is malformed, or has unknown keys.
    """
    try:
        settings = load(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise _build_unreadable_error(
            path, str(getattr(error, "strerror", None) or error)
        ) from error
    if not isinstance(settings, dict):
        raise _build_unreadable_error(path, "it is not a JSON object")
    unknown = ", ".join(sorted(settings.keys() - _KEYS))
    if unknown:
        raise _build_unreadable_error(
            path, f"it has the unknown keys {unknown}; a newer Pulumi CLI may have written it"
        )
    stack, stacks = settings.get("stack", ""), settings.get("stacks", {})
    stack_names = [stack, *stacks.values()] if isinstance(stacks, dict) else [None]
    if not all(isinstance(stack_name, str) for stack_name in stack_names):
        raise _build_unreadable_error(
            path, "`stack` is not a string, or `stacks` is not a map of strings"
        )
    return settings


def _build_unreadable_error(path: Path, reason: str) -> EngineError:
    """Build the error for an unreadable file with the selected stack."""
    return EngineError(
        f"cannot read the selected stack from {path}: {reason}",
        hint="Pass the stack with --stack NAME or PULUMI_STACK. The file contains only the "
        "selection: you may remove it and select the stack again.",
    )


USER: Final = "gpuform.user"
HOST: Final = "gpuform.host"
JOB: Final = "gpuform.ci.job"
PLAN_SEAL: Final = "gpuform.plan.seal"
PLAN_MADE_AT: Final = "gpuform.plan.madeAt"
PLAN_PULL_REQUEST: Final = "gpuform.plan.pullRequest"
APPROVED_BY_VARIABLE: Final = "GPUFORM_APPROVED_BY"
APPROVED_BY: Final = "gpuform.approvedBy"


@dataclass(frozen=True, slots=True)
class Origin:
    """The purpose (`message`) of a change, and who made the change from where (`environment`)."""

    message: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: {"exec.kind": "cli"})

    @classmethod
    def from_command(
        cls,
        folder: Path,
        environ: Mapping[str, str],
        *,
        message: str = "",
        plan: Mapping[str, str] | None = None,
    ) -> "Origin":
        """Build the origin of a command running in `folder`.

        Args:
            folder: the command's folder.
            environ: the environment variables.
            message: the purpose; without it, the title of the commit, by git or else by the CI job.
            plan: facts about the applied saved plan, by the names of the environment.
        """
        title, facts = read_git_facts(folder)
        job = find_ci_job(environ)
        if job is not None:
            facts = {**_build_job_facts(job), **facts}
            title = title or job.message.partition("\n")[0]
        facts |= {
            "exec.kind": "cli",
            "update.plan": "true" if plan else "false",
            USER: (job and job.user) or get_user(),
            HOST: socket.gethostname(),
            "gpuform.version": version("gpuform"),
            APPROVED_BY: environ.get(APPROVED_BY_VARIABLE, ""),
            **(plan or {}),
        }
        environment = {name: value for name, value in sorted(facts.items()) if value}
        return cls(message or title, environment)


def _build_job_facts(job: CiJob) -> dict[str, str]:
    """Return the facts about a CI job under the names of a history entry's environment.

    Facts that the CI system does not report are empty.
    """
    return {
        "ci.system": job.system,
        "ci.build.id": job.build_id,
        "ci.build.number": job.build_number,
        "ci.build.type": job.build_type,
        "ci.build.url": job.build_url,
        "ci.pr.headSHA": job.sha,
        "ci.pr.number": job.pull_request,
        "git.headName": job.branch,
        JOB: job.job,
    }
