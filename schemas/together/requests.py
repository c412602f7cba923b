"""Build the request bodies of Together's API from declared inputs.

From the Together reference and the parameters of its SDK.

Called by Together's lifecycles. A body has the declared fields and nothing else: the platform keeps
what an update leaves out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.together.drivers import parse_driver_version
from gpuform.schemas.together.inputs import ClusterInputs, SharedVolumeInputs

Body = dict[str, Any]


def build_cluster_create(inputs: ClusterInputs) -> Body:
    """Return the JSON for creating a cluster, with CUDA and driver version as two fields.

    Request: ``POST /compute/clusters``. The live service refuses the combined driver_version.
    """
    rules = get_field_rules(ClusterInputs)
    body = {name: value for name, value in inputs.dump_declared().items() if not rules[name].local}
    # the live service refuses driver_version alone (400)
    name = body.pop("driver_version", None)
    if name is not None:
        body["cuda_version"], body["nvidia_driver_version"] = parse_driver_version(name)
    return body


def build_cluster_update(inputs: ClusterInputs, changes: Sequence[FieldChange]) -> Body:
    """Return the body of ``PUT /compute/clusters/{id}``: the changed fields only.

    Immutable fields are left out. A field that is no longer declared is sent with its default, an
    add-on that is no longer declared is disabled (the request has no way to remove one). An object
    is sent with everything declared in it.
    """
    declared, rules = inputs.dump_declared(), get_field_rules(ClusterInputs)
    body: Body = {}
    for change in changes:
        # The change of a nested field sends the complete field at the top.
        name = change.path.split(".")[0].split("[")[0]
        # omitted fields keep their values on the platform, so only changes are sent
        is_sent = change.action is not Action.KEEP and name in rules
        if is_sent and not rules[name].immutable:
            body[name] = declared.get(name, change.after)
    # the change of one add-on needs the settings of the others, too
    if "add_ons" in body:
        body["add_ons"] = _build_add_ons(declared.get("add_ons", []), changes)
    return body


def build_volume_create(inputs: SharedVolumeInputs) -> Body:
    """Return the JSON for creating a shared volume: the declared fields.

    Request: ``POST /compute/clusters/storage/volumes``.
    """
    return inputs.dump_declared()


def build_volume_update(volume_id: str, inputs: SharedVolumeInputs) -> Body:
    """Return the JSON for enlarging a shared volume: the volume's id and the new size.

    Request: ``PUT /compute/clusters/storage/volumes``. Only the size can change.
    """
    return {"volume_id": volume_id, "size_tib": inputs.size_tib}


def _build_add_ons(declared: list[Body], changes: Sequence[FieldChange]) -> list[Body]:
    """Return the update request's add-ons: all declared ones, and removed ones as disabled.

    The platform merges add-ons by name, so a missing one would stay as it is. Each has name and
    configuration only: the type of an add-on cannot change (SDK, ClusterUpdateParams).
    """
    # A path that goes on behind the add-on is that of a field in its configuration.
    add_on_changes = [
        change
        for change in changes
        if change.path.startswith("add_ons[") and change.path.endswith("]")
    ]
    added = [change.after["name"] for change in add_on_changes if change.action is Action.ADD]
    # a name that the request omits would stay enabled
    removed = [change.before for change in add_on_changes if change.action is Action.DELETE]
    return [
        *(_select_changeable(add_on, is_added=add_on["name"] in added) for add_on in declared),
        *(
            {"name": removed_add_on["name"], "config": _build_switch(removed_add_on, on=False)}
            for removed_add_on in removed
        ),
    ]


def _select_changeable(add_on: Body, *, is_added: bool) -> Body:
    """Return an add-on for the update request; an added one is enabled unless declared otherwise.

    The platform does not report disabled add-ons: one that is missing there may have been switched
    off.
    """
    switch = _build_switch(add_on, on=True) if is_added else {}
    config = switch | add_on.get("config", {})
    return {"name": add_on["name"], **({"config": config} if config else {})}


def _build_switch(add_on: Mapping[str, Any], *, on: bool) -> Body:
    """Return the part of an add-on's request that enables or disables the add-on."""
    return {add_on["add_on_type"]: {"enabled": on}}
