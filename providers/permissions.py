"""Name what a run may be allowed: `--allow NAME`, or `GPUFORM_ALLOW=NAME,...`.

`RunContext` reads the variables; under the Pulumi CLI they are the only way, also in `destroy`.
Permissions are never stored.
"""

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuform.schemas.errors import EngineError

if TYPE_CHECKING:
    from gpuform.schemas.policies.repair import NodeFault, NodeRepair

VARIABLE = "GPUFORM_ALLOW"
ADOPT_VARIABLE = "GPUFORM_ADOPT"
"""Comma-separated ids of objects that the user attributes to an interrupted create of ours."""
ANEW_VARIABLE = "GPUFORM_CREATE_ANEW"
"""Set to 1 by a user who says that an interrupted create left no object."""
REPAIR_VARIABLE = "GPUFORM_REPAIR"
"""Nodes to repair, comma-separated: `train-worker-1`, or `train-worker-1=REBOOT_VM`.

REJECT and CANCEL as modes end an open repair of the platform instead.
"""

GATE = "gate:"
"""The prefix of permissions that lift a gate of a project, before the gate's name."""
REVIEWED_VARIABLE = "GPUFORM_REVIEWED_REPAIRS"
"""Comma-separated keys of the repairs that a person has seen in the plan of this run."""


class Permission(StrEnum):
    """Every permission by its name."""

    DESTROY_RESERVED = "destroy-reserved"
    DESTROY_OTHERS = "destroy-others"
    UNLOCK = "unlock"
    START_TERMINATED = "start-terminated"
    RENEW_EXPIRED = "renew-expired"
    FORGET_MANY = "forget-many"
    NEW_ADDRESS = "new-address"
    EVICT_JOBS = "evict-jobs"
    REPAIR = "repair"
    REAL_SCHEDULERS = "real-schedulers"


MEANINGS: Final[Mapping[Permission, str]] = {
    Permission.DESTROY_RESERVED: "delete or replace prepaid resources, which are not refunded",
    Permission.DESTROY_OTHERS: "delete objects that others created inside a deleted object",
    Permission.UNLOCK: "delete or stop locked resources",
    Permission.START_TERMINATED: "start a resource that its auto-termination or `idle` has stopped",
    Permission.RENEW_EXPIRED: "recreate an expired resource",
    Permission.FORGET_MANY: "forget three or more resources that their platforms report as removed",
    Permission.NEW_ADDRESS: "continue with a stack whose platform has another address now",
    Permission.EVICT_JOBS: "end the jobs on removed nodes, including unknown jobs",
    Permission.REPAIR: "repair broken nodes whose `repair` requires a review of the plan",
    Permission.REAL_SCHEDULERS: "ask real schedulers, and drain their nodes, on the emulator",
}


def parse_permissions(joined_names: str) -> frozenset[str]:
    """Parse a comma-separated list of permissions. Raises EngineError for an unknown name.

    Names of gates (`gate:NAME`) are not checked: the gates are known only where they are evaluated.
    """
    names = [name.strip() for name in joined_names.split(",") if name.strip()]
    unknown = [n for n in names if n not in set(Permission) and not n.startswith(GATE)]
    if unknown:
        allowed_names = "; ".join(f"{name} ({MEANINGS[name]})" for name in Permission)
        allowed_names += f"; {GATE}NAME (pass a gate of the project)"
        raise EngineError(
            f"{', '.join(unknown)}: permission not found", hint=f"permissions are: {allowed_names}"
        )
    return frozenset(names)


def compute_repair_key(repair: "NodeFault | NodeRepair") -> str:
    """Return a digest of a fault's node, machine, cause and id, to recognize a reviewed repair."""
    fault = (repair.node, repair.instance, repair.cause, repair.id)
    return hashlib.sha256("\n".join(fault).encode()).hexdigest()[:24]
