"""What the engine asks of the machine that it runs on.

Whole files, locks of the kernel, what git and a CI job say, how gpuform and the Pulumi CLI are
installed. It knows nothing of Pulumi's state.
"""

from gpuform.stacks.engine.machine.atomic import replace_file
from gpuform.stacks.engine.machine.ci import CiJob, ci_job, ci_variables
from gpuform.stacks.engine.machine.git import git_facts
from gpuform.stacks.engine.machine.installed import requirement
from gpuform.stacks.engine.machine.kernel_lock import KernelLock, LockAttempt
from gpuform.stacks.engine.machine.pulumi_cli import LAST_TRIED, cli_version
from gpuform.stacks.engine.machine.version_ranges import require_version

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
