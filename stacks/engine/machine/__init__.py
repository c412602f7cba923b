"""What the engine asks of the machine that it runs on.

Whole files, locks of the kernel, what git and a CI job say, how gpuform and the Pulumi CLI are
installed. It knows nothing of Pulumi's state.
"""

from gpuform.stacks.engine.machine.ci import CiJob, ci_job, ci_variables, git_facts
from gpuform.stacks.engine.machine.files import (
    LAST_TRIED,
    KernelLock,
    LockAttempt,
    cli_version,
    replace_file,
    require_version,
    requirement,
)

__all__ = [
    "LAST_TRIED",
    "CiJob",
    "KernelLock",
    "LockAttempt",
    "ci_job",
    "ci_variables",
    "cli_version",
    "git_facts",
    "replace_file",
    "require_version",
    "requirement",
]
