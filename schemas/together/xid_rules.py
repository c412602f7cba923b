"""Choose the repair of a node by the Xid errors that its alerts name.

`providers.together.repairs` calls `advise_repair` for each repair that Together proposes. The
actions are those of NVIDIA's Xid catalogue ("XID Errors", table of immediate actions for Ampere and
newer GPUs). The modes for them are ours: a reboot of the machine resets its GPUs, and only a power
cycle of the host restarts the bare metal below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpuform.schemas.policies.repair import NO_REPAIR
from gpuform.schemas.together.wire import LinkedAlert, XidEvent

_CODES_BY_ACTION: Final[Mapping[str, Sequence[int]]] = {
    "IGNORE": (14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 157, 161),
    "RESTART_APP": (
        *(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, *range(68, 73), 75, 76, 77, 80, *range(82, 87)),
        *(88, 89, 94, *range(96, 106), *range(126, 136), 139),
    ),
    "WORKFLOW_XID_45": (45,),
    "RESET_GPU": (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 162),
    "WORKFLOW_XID_48": (48,),
    "WORKFLOW_NVLINK_ERR": (74,),
    "WORKFLOW_NVLINK5_ERR": tuple(range(144, 151)),
    "RESTART_VM": (151,),
    "RESTART_BM": (79, 160),
}
_ACTION_BY_CODE: Final = {
    str(code): action for action, codes in _CODES_BY_ACTION.items() for code in codes
}
_MODE_BY_ACTION: Final[Mapping[str, str]] = {
    # Errors of applications, and errors that the GPU has handled: the node is sound.
    **dict.fromkeys(("IGNORE", "RESTART_APP", "WORKFLOW_XID_45"), NO_REPAIR),
    **dict.fromkeys(("RESET_GPU", "WORKFLOW_XID_48", "RESTART_VM"), "REBOOT_VM"),
    **dict.fromkeys(("WORKFLOW_NVLINK_ERR", "WORKFLOW_NVLINK5_ERR"), "REBOOT_VM"),
    "RESTART_BM": "HOST_POWER_CYCLE",
}
_MODES_BY_EFFECT: Final = ("HOST_POWER_CYCLE", "REBOOT_VM", NO_REPAIR)
"""The modes of the rules; the first that any error asks for serves all of a node's errors."""


@dataclass(frozen=True, slots=True)
class RepairAdvice:
    """The mode of repair that the Xid errors of a node ask for, and the rule in words.

    The mode is NO_REPAIR where a repair of the node would not help.
    """

    mode: str
    rule: str


def list_xid_events(alert: LinkedAlert) -> Sequence[XidEvent]:
    """Return the Xid errors that an alert names; none for an alert about something else."""
    xid = alert.annotation.xid if alert.annotation else None
    return xid.events if xid else ()


def format_xid_event(event: XidEvent) -> str:
    """Return an Xid error in words: `Xid 79 GPU_FELL_OFF_BUS, 3 times`."""
    name = f"Xid {event.xid_code} {event.mnemonic or ''}".rstrip()
    return f"{name}, {event.count} times" if (event.count or 0) > 1 else name


def advise_repair(alerts: Sequence[LinkedAlert]) -> RepairAdvice | None:
    """Return the repair that a node's alerts ask for by NVIDIA's catalogue, or None without a rule.

    None if an alert names no Xid error, or an error whose action is a person's decision: Together
    has proposed its repair for more than the catalogue knows.
    """
    events = [event for alert in alerts for event in list_xid_events(alert)]
    actions = {event.xid_code: _ACTION_BY_CODE.get(event.xid_code, "") for event in events}
    is_explained = all(list_xid_events(alert) for alert in alerts) and all(actions.values())
    if not actions or not is_explained:
        return None
    mode_by_code = {code: _MODE_BY_ACTION[action] for code, action in actions.items()}
    mode = min(mode_by_code.values(), key=_MODES_BY_EFFECT.index)
    rules = [f"Xid {code}: {actions[code]}" for code in actions if mode_by_code[code] == mode]
    return RepairAdvice(mode, f"{', '.join(rules)} in NVIDIA's Xid catalogue")
