"""Define where Slurm's own commands run for a cluster: in a pod, over SSH, or on this machine.

Used by the inputs of drains and certifications, and by `gpuform.providers.slurm`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from gpuform.schemas.models import InputModel, Problem

_SETTINGS_BY_METHOD = {
    "exec": ("namespace", "pod_selector", "container"),
    "ssh": ("host", "user", "port", "sudo"),
    "local": ("sudo",),
}
"""The settings of each value of `via`."""


class SlurmInputs(InputModel):
    """How gpuform reaches a cluster's Slurm. A setting of gpuform, never sent to the platform.

    The defaults fit Slinky, Slurm on Kubernetes: `scontrol` runs in the pod of the Slurm
    controller, which has the rights of Slurm's administrator.
    """

    via: Literal["exec", "ssh", "local"] = Field(
        default="exec",
        description="exec in a pod through the cluster's Kubernetes, ssh to a login node, or local "
        "where Slurm's commands are installed on this machine.",
        examples=["ssh"],
    )
    namespace: str = Field(
        default="slurm", min_length=1, description="exec: namespace of Slurm.", examples=["slurm"]
    )
    pod_selector: str = Field(
        default="app.kubernetes.io/name=slurmctld",
        min_length=1,
        description="exec: labels of the pods in which commands can be run; a running one is used.",
        examples=["app.kubernetes.io/component=login"],
    )
    # Slinky's names of its controller's container and labels.
    container: str = Field(
        default="slurmctld",
        min_length=1,
        description="exec: the container of the pod.",
        examples=["login"],
    )
    host: str = Field(
        default="slurm-login",
        pattern=r"^[A-Za-z0-9_]",  # nothing that ssh takes for an option
        description="ssh: the login node, or a Host of your SSH configuration.",
        examples=["slurm-login"],
    )
    user: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_]",
        description="ssh: name to log in with; the name in your SSH configuration when not "
        "declared.",
        examples=["ada"],
    )
    port: int | None = Field(
        default=None, ge=1, le=65535, description="ssh: port of the login node.", examples=[2222]
    )
    sudo: bool | None = Field(
        default=None,
        description="Whether to run changing commands with `sudo`, without a password; true by "
        "default with ssh.",
        examples=[False],
    )
    drain_by: Literal["scontrol", "slinky"] = Field(
        default="scontrol",
        description="How nodes are drained: scontrol, or slinky for an annotation of the nodes' "
        "pods, which Slinky 1.3 and newer follow.",
        examples=["slinky"],
    )

    @property
    def access(self) -> "SlurmInputs":
        """The settings that say where Slurm's commands run, with defaults for all others."""
        return self.model_copy(update={"drain_by": "scontrol"})

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for each setting that belongs to another way of access than `via`."""
        via = values.get("via", "exec")
        if via not in _SETTINGS_BY_METHOD:
            return
        for name in values:
            methods = [
                method for method, settings in _SETTINGS_BY_METHOD.items() if name in settings
            ]
            if methods and via not in methods:
                yield Problem(name, f"is a setting of via: {' and '.join(methods)}, not of {via}")
