"""Whom a run may ask for jobs beside its platforms: the schedulers that a topology names.

A kubeconfig's path and the host of a Slurm reach through this machine to others, with its files and
its keys. So a run on the emulator asks emulated schedulers alone, and a plan of what an agent
proposes asks those that the stack has already.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from gpuform.providers import permissions
from gpuform.providers.calls import CLOCK_VARIABLE
from gpuform.providers.errors import GpuformError, NotAllowed
from gpuform.providers.permissions import Permission
from gpuform.schemas.drain import KubernetesInputs
from gpuform.schemas.slurm import SlurmInputs

KNOWN_VARIABLE: Final = "GPUFORM_SCHEDULERS"
"""The schedulers that may be asked, when not all may: `{"kubernetes": [...], "slurm": [...]}` as
JSON, each as a topology declares it."""
SECTIONS: Final[Mapping[str, type[KubernetesInputs | SlurmInputs]]] = {
    "kubernetes": KubernetesInputs,
    "slurm": SlurmInputs,
}


def require_asked(declared: KubernetesInputs | SlurmInputs, what: str, server: str = "") -> None:
    """Raises GpuformError when a declared scheduler may not be asked.

    `what` it is, for the message; `server` is its address, where it has one.
    """
    clock = os.environ.get(CLOCK_VARIABLE)
    if clock and urlsplit(server).netloc == urlsplit(clock).netloc:  # also by https
        return
    known = os.environ.get(KNOWN_VARIABLE)
    if clock:
        refusal = f"{what} is not asked: this run is on the emulator, and the scheduler is not"
        if known is not None:  # who proposes may not allow it
            raise NotAllowed(refusal, hint="a plan against the platforms asks it")
        permissions.require(Permission.REAL_SCHEDULERS, refusal)
    elif known is not None and not _is_known(declared, json.loads(known)):
        raise GpuformError(
            f"{what} is not asked: the stack has no resource yet that names this scheduler",
            hint="a person puts it into the topology and applies that; a proposal may name it then",
        )


def schedulers_in(value: Any) -> dict[str, list[Any]]:
    """The schedulers that inputs declare at any depth, as `KNOWN_VARIABLE` has them."""
    found: dict[str, list[Any]] = {name: [] for name in SECTIONS}
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            for name in SECTIONS:
                if isinstance(each.get(name), Mapping) and each[name] not in found[name]:
                    found[name].append(each[name])
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return found


def _is_known(declared: KubernetesInputs | SlurmInputs, known: Mapping[str, Any]) -> bool:
    name = "slurm" if isinstance(declared, SlurmInputs) else "kubernetes"
    model = SECTIONS[name]
    return any(model.model_validate(each) == declared for each in known.get(name, ()))
