"""Who changes a stack, from where and by which plan, as its history keeps it.

The names are Pulumi's, which its CLI shows; what Pulumi has no name for begins with `gpuform.`.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Final

from gpuform.stacks.engine.machine import CiJob, ci_job, git_facts
from gpuform.stacks.engine.store import user

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
            USER: (job and job.user) or user(),
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
