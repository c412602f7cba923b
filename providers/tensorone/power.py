"""What a plan shows of the starts and stops of a TensorOne cluster. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.providers import permissions
from gpuform.providers.idleness import is_for_idleness
from gpuform.providers.permissions import Permission
from gpuform.schemas.changes import KNOWN_AFTER_APPLY, Action, FieldChange
from gpuform.schemas.tensorone.statuses import AT_REST, ClusterStatus
from gpuform.schemas.values import UNKNOWN


def state_changes(old: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[FieldChange]:
    """Whether it is to be started or stopped, by what was last seen and what is declared."""
    status, state = old.get("status"), declared.get("state", "running")
    seen = status if status in AT_REST else old.get("state", "running")
    before, by = old.get("state", seen), old.get("stopped_by")
    if state is UNKNOWN:
        because = KNOWN_AFTER_APPLY
        yield FieldChange("state", Action.UPDATE, before, state, because=because)
    elif is_for_idleness(by) and declared.get("idle") is not None and state == "stopped":
        return  # as `gpuform expire` has left it: who declares idle cannot declare that
    elif by and not (is_for_idleness(by) and declared.get("idle") is None):
        yield _after_termination(by, state)
    elif before != state:
        yield FieldChange("state", Action.UPDATE, before, state)
    elif seen != state:
        yield FieldChange("state", Action.UPDATE, seen, state)


def _after_termination(by: str, state: str) -> FieldChange:
    """What is done about a cluster that its own limit has stopped."""
    because = f"stopped by {by}"
    if state == "stopped":
        return FieldChange("state", Action.UPDATE, "running", state, because=because)
    if Permission.START_TERMINATED in permissions.given():
        return FieldChange("state", Action.UPDATE, "stopped", state, because=because)
    because = f"{because}; --allow {Permission.START_TERMINATED} starts it again"
    return FieldChange("state", Action.KEEP, "stopped", "stopped", because=because)


def how_started(path: str, old: Mapping[str, Any], declared: Mapping[str, Any]) -> str:
    """What a change at a start takes, in the plan's words."""
    is_stopped = old.get("status") == ClusterStatus.STOPPED
    if declared.get("state") == "stopped":
        if path == "restore_snapshot":
            return "at the next start"
        return "starts and stops the cluster" if is_stopped else "restarts and stops the cluster"
    return "starts the cluster" if is_stopped else "stops and starts the cluster"
