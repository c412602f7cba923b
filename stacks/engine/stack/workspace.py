"""Find the selected stack of a project where the Pulumi CLI keeps it, and who changes a stack from
where.

The file has a stack for each backend, under the backend's URL as it is configured. CLIs before
3.256 knew one stack for all backends; what they have chosen counts where nothing newer was.

The names are Pulumi's, which its CLI shows; what Pulumi has no name for begins with `gpuform.`.
"""

import hashlib
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import CiJob, ci_job, cli_version, git_facts, replace_file
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.store import build_full_name, get_configured_url, get_user
from gpuform.stacks.engine.values import load

_BY_BACKEND = (3, 256)
"""The first Pulumi CLI that keeps a selection for each backend."""

_KEYS = {"stack", "stacks", "config"}  # `config` is of CLIs before 1.0, and is theirs alone


class StackNotFound(EngineError):
    """There is no such stack, or none is selected."""

    help_page = "concepts/stack"


def short_name(project: Project, name: str) -> str:
    """The name in its project. Raises StackNotFound for a stack of another project."""
    *owner, short = name.split("/")
    if owner and owner not in (["organization"], ["organization", project.name]):
        renamed = f", or write `name: {owner[1]}` in Pulumi.yaml" if len(owner) == 2 else ""
        raise StackNotFound(
            f"'{name}' is no stack of this project, which is {project.name}",
            hint="name one of this project with --stack NAME, or select it: `gpuform stack select "
            f"NAME`{renamed}",
        )
    return short


def selected_stack(project: Project, environ: Mapping[str, str]) -> str | None:
    """The selected stack's short name: PULUMI_STACK, else what was selected, else None.

    Raises StackNotFound when it is a stack of another project, and EngineError for a file that
    cannot be understood.
    """
    given = environ.get("PULUMI_STACK")
    if given is not None:
        return short_name(project, given) if given else None
    return _chosen(_read(_path(project, environ)), project, environ)


def select_stack(
    project: Project,
    stack: str | None,
    environ: Mapping[str, str],
    *,
    project_of_stack: str | None = None,
) -> None:
    """Select a stack for this project's folder and backend; None forgets the selection.

    `project_of_stack` is another project, which Pulumi.yaml does not name yet. Raises EngineError
    for a file that cannot be understood, and leaves that as it is.
    """
    path = _path(project, environ)
    settings = _read(path)
    name = None if stack is None else build_full_name(project_of_stack or project.name, stack)
    by_backend = settings.setdefault("stacks", {})
    if name is None:
        by_backend.pop(get_configured_url(environ, project), None)
        settings.pop("stack", None)
    elif by_backend or _knows_backends(environ):
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
            f"the selected stack cannot be kept in {path}: {error.strerror}",
            hint="Name the stack with --stack, or set PULUMI_HOME to a folder you can write to.",
        ) from error


def unselect_stack(project: Project, stack: str, environ: Mapping[str, str]) -> None:
    """Forget the selection if it is this stack."""
    if _chosen(_read(_path(project, environ)), project, environ) == stack:
        select_stack(project, None, environ)


def check_selectable(project: Project, environ: Mapping[str, str]) -> None:
    """Raises EngineError when `select_stack` would for what is in the file."""
    _read(_path(project, environ))


def _chosen(
    settings: Mapping[str, Any], project: Project, environ: Mapping[str, str]
) -> str | None:
    """What the settings say for the backend. Raises StackNotFound for another project's stack."""
    name = settings.get("stacks", {}).get(get_configured_url(environ, project))
    if name is not None:
        return short_name(project, name)
    for_all = settings.get("stack")
    try:
        return short_name(project, for_all) if for_all else None
    except StackNotFound:  # chosen in another backend, where there are other projects
        return None


def _path(project: Project, environ: Mapping[str, str]) -> Path:
    """Pulumi's file for the project: its name holds the SHA-1 of the path of Pulumi.yaml."""
    home = environ.get("PULUMI_HOME")
    folder = Path(home) if home else Path.home() / ".pulumi"
    digest = hashlib.sha1(str(project.path).encode(), usedforsecurity=False).hexdigest()
    return folder / "workspaces" / f"{project.name}-{digest}-workspace.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        settings = load(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise _not_understood(path, str(getattr(error, "strerror", None) or error)) from error
    if not isinstance(settings, dict):
        raise _not_understood(path, "it is no JSON object")
    unknown = ", ".join(sorted(settings.keys() - _KEYS))
    if unknown:
        raise _not_understood(path, f"a newer Pulumi CLI may have written it: it has {unknown}")
    stack, stacks = settings.get("stack", ""), settings.get("stacks", {})
    texts = [stack, *stacks.values()] if isinstance(stacks, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise _not_understood(path, "`stack` is no text, or `stacks` no table of texts")
    return settings


def _not_understood(path: Path, why: str) -> EngineError:
    return EngineError(
        f"which stack is selected cannot be read from {path}: {why}",
        hint="Name the stack with --stack NAME or PULUMI_STACK. The file holds nothing but the "
        "selection: without it, select again.",
    )


def _knows_backends(environ: Mapping[str, str]) -> bool:
    """Whether the Pulumi CLI that is installed here keeps a selection for each backend."""
    version = cli_version(environ)
    return version is None or version >= _BY_BACKEND


USER: Final = "gpuform.user"
HOST: Final = "gpuform.host"
JOB: Final = "gpuform.ci.job"
PLAN_SEAL: Final = "gpuform.plan.seal"
PLAN_MADE_AT: Final = "gpuform.plan.madeAt"


@dataclass(frozen=True, slots=True)
class Origin:
    """`message` says what the change is for; `environment` who made it and from where."""

    message: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: {"exec.kind": "cli"})

    @classmethod
    def of(
        cls,
        folder: Path,
        environ: Mapping[str, str],
        *,
        message: str = "",
        plan: tuple[str, str] | None = None,
    ) -> "Origin":
        """That of a command which works in a folder.

        `plan` is the seal of the saved plan that it applies, and when that was made. Without a
        `message` it is the title of the commit.
        """
        title, facts = git_facts(folder)
        job = ci_job(environ)
        if job is not None:
            facts = {**_of_job(job), **facts}
            title = title or job.message.partition("\n")[0]
        seal, made_at = plan or ("", "")
        facts |= {
            "exec.kind": "cli",
            "update.plan": "true" if plan else "false",
            USER: (job and job.user) or get_user(),
            HOST: socket.gethostname(),
            "gpuform.version": version("gpuform"),
            PLAN_SEAL: seal,
            PLAN_MADE_AT: made_at,
        }
        told = {name: text for name, text in sorted(facts.items()) if text}
        return cls(message or title, told)


def _of_job(job: CiJob) -> dict[str, str]:
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
