"""Give the engine files, locks and versions of this machine, and the facts of git and CI.

Independent of Pulumi's state; used by `store`, `stack` and the commands.
"""

from gpuform.stacks.engine.machine.ci import CiJob, find_ci_job, list_ci_variables, read_git_facts
from gpuform.stacks.engine.machine.files import (
    LAST_TRIED,
    KernelLock,
    LockAttempt,
    get_pip_requirement,
    read_cli_version,
    replace_file,
    require_version,
)

__all__ = [
    "LAST_TRIED",
    "CiJob",
    "KernelLock",
    "LockAttempt",
    "find_ci_job",
    "get_pip_requirement",
    "list_ci_variables",
    "read_cli_version",
    "read_git_facts",
    "replace_file",
    "require_version",
]
