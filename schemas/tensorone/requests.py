"""Build the request bodies of TensorOne's API from declared inputs.

From TensorOne's documentation, 'GPU Clusters'.

Called by TensorOne's lifecycle. A body has the declared fields and nothing else: the platform keeps
what an update leaves out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.policies.lifetime import LIFETIME_FIELDS as LIFETIME
from gpuform.schemas.tensorone.inputs import UPDATE_FIELDS, ClusterInputs

Body = dict[str, Any]

NOT_IN_CREATE: Final = frozenset(
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
"""Inputs that a create request does not have: fields of other requests, and settings of gpuform."""

SECRET_MEMBERS: Final = ("environment_variables",)
"""Members of request bodies whose values no message may contain."""


def build_create(inputs: ClusterInputs) -> Body:
    """Return the JSON for creating a cluster, by ``POST /clusters``.

    A cluster that is to restore a snapshot, or to be stopped, is created without being started.
    """
    body = {
        name: value for name, value in inputs.dump_declared().items() if name not in NOT_IN_CREATE
    }
    if inputs.state == "stopped" or inputs.restore_snapshot is not None:
        # a snapshot is restored by the first start
        body["auto_start"] = False
    return body


def build_update(inputs: ClusterInputs, changes: Sequence[FieldChange]) -> Body:
    """Return the JSON for updating a cluster: each changed field with its complete value.

    Request: ``PUT /clusters/{id}``. Fields that an update request cannot have are left out, and a
    field that is no longer declared is sent only if it has a default. The body may be empty.
    """
    declared, body = inputs.dump_declared(), Body()
    for change in changes:
        name = change.path.split(".")[0].split("[")[0]
        if name in UPDATE_FIELDS and change.action is not Action.KEEP:
            # the update request replaces the complete field, so a changed part is not enough
            body[name] = declared.get(name, change.after)
    return body


def build_start(configuration: Mapping[str, Any], snapshot: str | None) -> Body:
    """Return the JSON for starting a cluster, with its changed configuration and a snapshot.

    Request: ``POST /clusters/{id}/start``. ``snapshot`` is the snapshot to restore; None for none.
    """
    body = Body()
    if configuration:
        body["update_configuration"] = dict(configuration)
    if snapshot is not None:
        body["restore_from_snapshot"] = snapshot
    return body


def build_delete(*, final_snapshot: bool, snapshot_name: str | None) -> Body:
    """Return the JSON for deleting a cluster, with the confirmation that the platform requires.

    Request: ``DELETE /clusters/{id}``. With ``final_snapshot`` the platform keeps a last snapshot;
    without, ``snapshot_name`` does not count.
    """
    # 'Delete Cluster' lists the confirmation as optional, but requires the text DELETE
    body: Body = {"confirm_deletion": "DELETE"}
    if final_snapshot:
        body["create_final_snapshot"] = True
        if snapshot_name is not None:
            body["snapshot_name"] = snapshot_name
    return body
