"""Use a cluster's Slurm through its own commands: drain nodes, and run batch jobs.

`scheduler` is what draining calls, `results` what certifications call. Both send commands by a
`CommandRunner`: on this machine, over SSH, or in a pod.
"""

from gpuform.providers.slurm.batch import BatchJob, BatchQueue, parse_exit_code
from gpuform.providers.slurm.parsing import SlurmJob, SlurmNode
from gpuform.providers.slurm.results import SlurmTester, search_result
from gpuform.providers.slurm.scheduler import (
    NodeCondition,
    SlurmScheduler,
    create_command_runner,
    create_declared_scheduler,
    create_draining_scheduler,
    create_slurm_scheduler,
    list_node_conditions,
)

__all__ = [
    "BatchJob",
    "BatchQueue",
    "NodeCondition",
    "SlurmJob",
    "SlurmNode",
    "SlurmScheduler",
    "SlurmTester",
    "create_command_runner",
    "create_declared_scheduler",
    "create_draining_scheduler",
    "create_slurm_scheduler",
    "list_node_conditions",
    "parse_exit_code",
    "search_result",
]
