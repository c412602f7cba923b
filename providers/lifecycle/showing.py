"""The outputs of an object that was looked at, without secrets in what is written for people."""

from collections.abc import Mapping
from typing import Any, Final

from gpuform.providers.actions import Observed
from gpuform.providers.calls import Call
from gpuform.providers.lifecycle.traits import Traits
from gpuform.providers.properties import Properties

MESSAGES: Final = frozenset(
    {"not_ready_reason", "message", "status_message", "because", "reason", "error_message"}
)
"""The outputs, and members of them, that a platform writes for people."""


def shown(kind: Traits, call: Call, observed: Observed[Any]) -> Properties:
    """Computed outputs as plain values, without those that have none.

    Secret outputs are hidden by the call from now on.
    """
    dumped: Properties = observed.outputs.model_dump(mode="json", exclude_none=True)
    call.hide(dumped.get(name) for name in kind.outputs.secret_names())
    return {name: _redacted(name, value, call) for name, value in dumped.items()}


def _redacted(name: str, value: Any, call: Call) -> Any:
    if isinstance(value, Mapping):
        return {key: _redacted(key, item, call) for key, item in value.items()}
    if isinstance(value, list):
        return [_redacted(name, item, call) for item in value]
    return call.redacted(value) if name in MESSAGES and isinstance(value, str) else value
