"""Repairs of a worker's machine: what Together sends, and what it is sent.

The six calls are of the platform's SDKs (`clusters.remediations`); its reference lacks them. Modes
and triggers are written without what all of them begin with, as the platform's own command line
does: HOST_AWARE for REMEDIATION_MODE_HOST_AWARE.
"""

from functools import partial
from typing import Annotated, Any, Final

from pydantic import BeforeValidator

from gpuform.schemas.ids import Line
from gpuform.schemas.models import WireModel

_MODE: Final = "REMEDIATION_MODE_"
_TRIGGER: Final = "REMEDIATION_TRIGGER_"
_SEVERITY: Final = "PHC_SEVERITY_"


def _without(prefix: str, value: object) -> object:
    return value.removeprefix(prefix) if isinstance(value, str) else value


Mode = Annotated[str, BeforeValidator(partial(_without, _MODE))]
Trigger = Annotated[str, BeforeValidator(partial(_without, _TRIGGER))]
Severity = Annotated[str, BeforeValidator(partial(_without, _SEVERITY))]


class LinkedAlert(WireModel):
    """What a health check has found; `resolved_at` is empty while it holds."""

    alert_name: str = ""
    severity: Severity = ""
    started_at: str | None = None
    resolved_at: str | None = None
    target_vm: str = ""
    cluster_id: Line = ""
    instance_id: Line | None = None
    passive_health_check_alert_id: str = ""
    node_remediation_intent_id: str | None = None
    annotation: Any = None
    annotations: Any = None


class Remediation(WireModel):
    """A repair of a node's machine."""

    id: str = ""
    cluster_id: Line = ""
    instance_id: Line = ""
    instance_name: str | None = None
    mode: Mode = ""
    state: str = ""
    trigger: Trigger = ""
    reason: str | None = None
    error_message: str | None = None
    requested_by: str | None = None
    reviewed_by: str | None = None
    review_comment: str | None = None
    review_time: str | None = None
    create_time: str | None = None
    update_time: str | None = None
    start_time: str | None = None
    end_time: str | None = None
    active_health_check_run_id: str | None = None
    passive_health_check_event_id: str | None = None
    linked_alerts: tuple[LinkedAlert, ...] = ()


def remediation_create(mode: str, reason: str) -> dict[str, Any]:
    """``POST .../remediations``."""
    return {"mode": f"{_MODE}{mode}", "reason": reason}


def remediation_approve(mode: str, comment: str) -> dict[str, Any]:
    """``POST .../approve``; an empty `mode` leaves it as it was proposed."""
    chosen = {"mode": f"{_MODE}{mode}"} if mode else {}
    return {"comment": comment, **chosen}
