"""Declarations as request bodies (TensorOne's documentation, 'GPU Clusters').

A body has what is declared and nothing else: the platform keeps what an update leaves out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.policies.lifetime import FIELDS as LIFETIME
from gpuform.schemas.tensorone.inputs import UPDATED, ClusterInputs

Body = dict[str, Any]

OWN: Final = frozenset(
    {
        "state",
        "require_healthy",
        "restore_snapshot",
        "final_snapshot",
        "final_snapshot_name",
        "on_no_capacity",
        "idle",
        "repair",
        *LIFETIME,
    }
)
"""Inputs that are no parts of a create: of other requests, or gpuform's own."""

SECRET_MEMBERS: Final = ("environment_variables",)
"""Members of bodies whose values no message may have."""


def cluster_create(inputs: ClusterInputs) -> Body:
    """``POST /clusters``: one that is to restore a snapshot, or to be stopped, is not started."""
    body = {name: value for name, value in inputs.dump_declared().items() if name not in OWN}
    if inputs.state == "stopped" or inputs.restore_snapshot is not None:
        body["auto_start"] = False
    return body


def cluster_update(inputs: ClusterInputs, changes: Sequence[FieldChange]) -> Body:
    """``PUT /clusters/{id}``: the changed fields alone, each as a whole; maybe none.

    A field no longer declared is not sent, but for one that has a default.
    """
    declared, body = inputs.dump_declared(), Body()
    for change in changes:
        name = change.path.split(".")[0].split("[")[0]
        if name in UPDATED and change.action is not Action.KEEP:
            body[name] = declared.get(name, change.after)
    return body


def cluster_start(configuration: Mapping[str, Any], snapshot: str | None) -> Body:
    """``POST /clusters/{id}/start``: with what changes at a start, if anything does."""
    body = Body()
    if configuration:
        body["update_configuration"] = dict(configuration)
    if snapshot is not None:
        body["restore_from_snapshot"] = snapshot
    return body


def cluster_delete(*, final_snapshot: bool, snapshot_name: str | None) -> Body:
    """``DELETE /clusters/{id}``, which wants to be confirmed."""
    body: Body = {"confirm_deletion": "DELETE"}
    if final_snapshot:
        body["create_final_snapshot"] = True
        if snapshot_name is not None:
            body["snapshot_name"] = snapshot_name
    return body
