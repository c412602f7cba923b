"""Declarations as request bodies (Together reference; the SDK's parameters).

A body has what is declared and nothing else: the platform keeps what an update leaves out.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.together.drivers import driver_pair
from gpuform.schemas.together.inputs import ClusterInputs, SharedVolumeInputs

Body = dict[str, Any]


def cluster_create(inputs: ClusterInputs) -> Body:
    """``POST /compute/clusters``: always with the driver pair, however it is declared."""
    rules = get_field_rules(ClusterInputs)
    body = {name: value for name, value in inputs.dump_declared().items() if not rules[name].local}
    name = body.pop("driver_version", None)
    if name is not None:
        body["cuda_version"], body["nvidia_driver_version"] = driver_pair(name)
    return body


def cluster_update(inputs: ClusterInputs, changes: Sequence[FieldChange]) -> Body:
    """``PUT /compute/clusters/{id}``: the changed fields alone.

    A field no longer declared is sent with its default, an add-on no longer declared is disabled
    (the request has no way to remove one). An object is sent with all that is declared of it.
    """
    declared, rules = inputs.dump_declared(), get_field_rules(ClusterInputs)
    body: Body = {}
    for change in changes:
        name = change.path.split(".")[0].split("[")[0]
        is_sent = change.action is not Action.KEEP and name in rules
        if is_sent and not rules[name].immutable:
            body[name] = declared.get(name, change.after)
    if "add_ons" in body:
        body["add_ons"] = _changed_add_ons(declared.get("add_ons", []), changes)
    return body


def volume_create(inputs: SharedVolumeInputs) -> Body:
    """``POST /compute/clusters/storage/volumes``."""
    return inputs.dump_declared()


def volume_update(volume_id: str, inputs: SharedVolumeInputs) -> Body:
    """``PUT /compute/clusters/storage/volumes``: the id is in the body; only the size changes."""
    return {"volume_id": volume_id, "size_tib": inputs.size_tib}


def _changed_add_ons(declared: list[Body], changes: Sequence[FieldChange]) -> list[Body]:
    """All declared ones, which are merged by name; those no longer declared are switched off."""
    items = [change for change in changes if change.path.startswith("add_ons[")]
    added = [change.after["name"] for change in items if change.action is Action.ADD]
    removed = [change.before for change in items if change.action is Action.DELETE]
    return [
        *(_switched_on(add_on) if add_on["name"] in added else add_on for add_on in declared),
        *({"name": one["name"], "config": _switch(one, on=False)} for one in removed),
    ]


def _switched_on(add_on: Body) -> Body:
    """The platform shows no disabled add-on: one that is not there may have been switched off."""
    return {**add_on, "config": _switch(add_on, on=True) | add_on.get("config", {})}


def _switch(add_on: Mapping[str, Any], *, on: bool) -> Body:
    return {add_on["add_on_type"]: {"enabled": on}}
