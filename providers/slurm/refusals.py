"""What Slurm refuses, said with a remedy."""

from collections.abc import Sequence

from gpuform.providers.errors import GpuformError, Unreachable
from gpuform.providers.slurm.commands import Output
from gpuform.schemas.visible import visible

_REMEDIES = (
    ("a password is required", "let sudo run scontrol without a password, or say `sudo: false`"),
    ("invalid user id", "it needs an operator or administrator of Slurm: another user, or sudo"),
    ("permission denied", "it needs an operator or administrator of Slurm: another user, or sudo"),
    ("invalid node name", "the node has just left: try again, and compare with `sinfo -N`"),
    ("configuration source", "Slurm is not configured there: run it where `sinfo` answers"),
    ("not found", "Slurm's commands are not installed there: run it where `sinfo` answers"),
)
_SILENT = ("unable to contact", "connect failure", "timed out", "communication")


def refused(command: Sequence[str], output: Output, place: str) -> GpuformError:
    """The error for a command that ended with another code than 0."""
    told = " ".join(output.stderr.split()) or " ".join(output.stdout.split())
    told = visible(told) or "it said nothing"
    message = f"`{' '.join(command[:3])}` failed ({place}, exit code {output.code}): {told[:300]}"
    said = told.lower()
    if any(each in said for each in _SILENT):
        return Unreachable(message, hint="slurmctld does not answer: see `scontrol ping` there")
    hint = next((remedy for part, remedy in _REMEDIES if part in said), None)
    return GpuformError(message, hint=hint or "run it there by hand to see more")
