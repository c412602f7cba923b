"""What an overview shows of a resource, from the names that all platforms' outputs share."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.providers.catalog import has_kind, lifecycle_class


@dataclass(frozen=True)
class Summary:
    """`state` is the platform's own word, empty where it has none; `hourly_cost` is in `currency`.

    `ready` is None for what is not gpuform's own. `owner` is whom the platform names.
    """

    state: str = ""
    ready: bool | None = None
    reason: str = ""
    gpus: int = 0
    hourly_cost: float | None = None
    currency: str = ""
    alerts: tuple[str, ...] = ()
    owner: str = ""


def summary_of(platform: str, kind: str, outputs: Mapping[str, Any]) -> Summary:
    """The summary of a resource of this kind; of one that is not gpuform's it says nothing.

    `outputs` are plain values, secret ones masked.
    """
    if not has_kind(platform, kind):
        return Summary()
    lifecycle = lifecycle_class(platform, kind)
    gpus = lifecycle.gpus(outputs)
    cost = outputs.get("current_hourly_rate")
    return Summary(
        state=_state(outputs),
        ready=outputs.get("ready") is True,
        reason=str(outputs.get("not_ready_reason") or ""),
        gpus=gpus or 0,
        hourly_cost=float(cost) if isinstance(cost, int | float) else None,
        currency=str(outputs.get("currency") or ""),
        alerts=tuple(_alerts(outputs)),
        owner=lifecycle.owner(outputs),
    )


def _state(outputs: Mapping[str, Any]) -> str:
    """Its own, or those of its nodes."""
    own = outputs.get("status") or outputs.get("state")
    nodes = outputs.get("gpu_nodes")
    if isinstance(nodes, Mapping):
        states = Counter(str(node.get("state")) for node in nodes.values())
        return ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return str(own or "")


def _alerts(outputs: Mapping[str, Any]) -> Iterator[str]:
    """What the platform warns of, and the parts that are not healthy."""
    alerts = outputs.get("alerts")
    for alert in alerts if isinstance(alerts, list) else ():
        severity = alert.get("severity")
        text = alert.get("message") or alert.get("type") or "no message"
        yield f"{text} ({severity})" if severity else str(text)
    for name, value in sorted(outputs.items()):
        if name.endswith("_health") and value not in (None, "", "healthy"):
            yield f"{name} is {value}"
