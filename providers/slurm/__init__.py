"""Slurm, the scheduler of a cluster, through its own commands."""

from gpuform.providers.errors import GpuformError
from gpuform.providers.slurm.commands import Commands
from gpuform.providers.slurm.processes import LocalCommands, SshCommands
from gpuform.providers.slurm.scheduler import SlurmScheduler
from gpuform.schemas.slurm import SlurmInputs

__all__ = ["SlurmScheduler", "slurm_scheduler"]


def slurm_scheduler(inputs: SlurmInputs, *, kubeconfig: str | None = None) -> SlurmScheduler:
    """The Slurm of a cluster, asked as `inputs` say.

    `kubeconfig` is the text of the cluster's own, needed for `via: exec`. Nothing is asked yet.
    Raises GpuformError without it.
    """
    return SlurmScheduler(_commands(inputs, kubeconfig))


def _commands(inputs: SlurmInputs, kubeconfig: str | None) -> Commands:
    if inputs.via == "ssh":
        return SshCommands(inputs)
    if inputs.via == "local":
        return LocalCommands(sudo=bool(inputs.sudo))
    if not kubeconfig:
        raise GpuformError(
            "the cluster has no kubeconfig yet, and its Slurm is asked through it",
            hint="wait until the cluster is ready, or ask by `slurm: {via: ssh}`",
        )
    from gpuform.providers.slurm.pods import PodCommands  # noqa: PLC0415 - slow

    return PodCommands(inputs, kubeconfig)
