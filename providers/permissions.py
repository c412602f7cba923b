"""Read what a run is allowed: `--allow NAME`, or `GPUFORM_ALLOW=NAME,...`.

The environment is the only way that works under both engines and in `destroy`; `--allow` sets it.
Permissions are never stored.
"""

import hashlib
import os
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from gpuform.providers.errors import NotAllowed
from gpuform.schemas.errors import EngineError
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


def parse_permissions(text: str) -> frozenset[str]:
    """Parse a comma-separated list of permissions. Raises EngineError for an unknown name.

    Names of gates (`gate:NAME`) are not checked: the gates are known only where they are evaluated.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [n for n in names if n not in set(Permission) and not n.startswith(GATE)]
    if unknown:
        known = "; ".join(f"{name} ({MEANINGS[name]})" for name in Permission)
        known += f"; {GATE}NAME (pass a gate of the project)"
        raise EngineError(
            f"{', '.join(unknown)}: permission not found", hint=f"permissions are: {known}"
        )
    return frozenset(names)


def get_permissions(environ: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the permissions of this run. Raises EngineError for an unknown name."""
    text = (os.environ if environ is None else environ).get(VARIABLE, "")
    try:
        return parse_permissions(text)
    except EngineError as error:
        raise EngineError(f"{VARIABLE}: {error.message}", hint=error.hint) from None


def require_permission(permission: Permission, refusal: str) -> None:
    """Raise NotAllowed with `refusal` and a hint, unless this run has the permission."""
    if permission not in get_permissions():
        raise NotAllowed(
            refusal,
            hint=f"to allow this: --allow {permission}, or {VARIABLE}={permission} in the "
            "environment (with `pulumi` only the variable)",
        )


def get_adopted_ids(environ: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the ids of existing objects that the run takes over as its own (`--adopt ID`)."""
    text = (os.environ if environ is None else environ).get(ADOPT_VARIABLE, "")
    return frozenset(filter(None, map(str.strip, text.split(","))))


def should_create_anew(environ: Mapping[str, str] | None = None) -> bool:
    """Return True if the run may create an object beside same-named ones (`--create-anew`)."""
    return (os.environ if environ is None else environ).get(ANEW_VARIABLE, "") in ("1", "true")


def get_requested_repairs(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the nodes whose repair this run was asked for, each with its mode.

    The mode is empty if any kind of repair will do.
    """
    text = (os.environ if environ is None else environ).get(REPAIR_VARIABLE, "")
    pairs = (entry.strip().partition("=") for entry in text.split(",") if entry.strip())
    return {name.strip(): mode.strip() for name, _, mode in pairs}


def compute_repair_key(repair: NodeFault | NodeRepair) -> str:
    """Return a digest of a fault's node, machine, cause and id, to recognize a reviewed repair."""
    fault = (repair.node, repair.instance, repair.cause, repair.id)
    return hashlib.sha256("\n".join(fault).encode()).hexdigest()[:24]


def get_reviewed_repairs(environ: Mapping[str, str] | None = None) -> frozenset[str]:
    """Return the keys (`compute_repair_key`) of the repairs that a reviewed plan has shown."""
    text = (os.environ if environ is None else environ).get(REVIEWED_VARIABLE, "")
    return frozenset(filter(None, text.split(",")))
