"""Find the kinds of resources of each platform, and summarize one resource for an overview."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuform.providers.errors import BrokenPlatform, UnsupportedKind
from gpuform.providers.platform import KINDS, Platform, load, platforms, unusable_platforms
from gpuform.schemas.checking import find_nearest_name

if TYPE_CHECKING:
    from gpuform.providers.lifecycle import Lifecycle
    from gpuform.providers.resource import PlatformResource


def platform_of(name: str) -> Platform:
    """A platform by its name. Raises UnsupportedKind for none, BrokenPlatform with the reason."""
    found = platforms().get(name)
    if found is not None:
        return found
    why = unusable_platforms().get(name)
    if why is not None:
        raise BrokenPlatform(f"the platform {name} cannot be used: {why.because}", hint=why.hint)
    near = find_nearest_name(name, tuple(platforms()))
    meant = f"did you mean {near}?" if near else f"use one of {', '.join(platforms())}"
    raise UnsupportedKind(f"{name} is not a platform", hint=meant)


def has_kind(platform: str, kind: str) -> bool:
    """Whether there is such a platform, and it has such a kind."""
    found = platforms().get(platform)
    return found is not None and kind in found.lifecycles


def all_kinds() -> list[tuple[str, str]]:
    """Every platform with each of its kinds."""
    return [(name, kind) for name, each in platforms().items() for kind in each.lifecycles]


def lifecycle_class(platform: str, kind: str) -> "type[Lifecycle[Any, Any]]":
    """The lifecycle of a kind on a platform, imported now.

    Raises UnsupportedKind, and BrokenPlatform for a platform that cannot be used.
    """
    path = platform_of(platform).lifecycles.get(kind)
    if path is None:
        raise UnsupportedKind(_refusal(platform, kind))
    found: type[Lifecycle[Any, Any]] = load(path)
    return found


def resource_class(platform: str, kind: str) -> "type[PlatformResource]":
    """The Pulumi resource class of a kind on a platform. Raises as `lifecycle_class`."""
    lifecycle_class(platform, kind)
    found: type[PlatformResource] = platform_of(platform).exported(kind)
    return found


def lookup_names(platform: str) -> list[str]:
    """The functions by which a program can ask a platform what there is."""
    return list(platform_of(platform).lookups)


def lookup(platform: str, name: str) -> Callable[..., Any]:
    """One of a platform's `lookup_names`."""
    found: Callable[..., Any] = load(platform_of(platform).lookups[name])
    return found


def platforms_with(kind: str) -> list[str]:
    """The platforms that have a kind."""
    return [name for name, platform in platforms().items() if kind in platform.lifecycles]


def capability_table() -> str:
    """Kinds against platforms, as a Markdown table."""
    names = list(platforms())
    rows = [["kind", *names], ["---"] * (len(names) + 1)]
    rows += [
        [kind, *("yes" if has_kind(each, kind) else "-" for each in names)]
        for kind in KINDS
        if platforms_with(kind)
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _refusal(platform: str, kind: str) -> str:
    owners = platforms_with(kind)
    if owners:
        return f"{platform} has no {kind}: declare it on {' or '.join(owners)}"
    kinds = ", ".join(platforms()[platform].lifecycles)
    return f"{platform} has no {kind}, and no other platform has one: it has {kinds}"


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
    gpus = lifecycle.count_gpus(outputs)
    cost = outputs.get("current_hourly_rate")
    return Summary(
        state=_state(outputs),
        ready=outputs.get("ready") is True,
        reason=str(outputs.get("not_ready_reason") or ""),
        gpus=gpus or 0,
        hourly_cost=float(cost) if isinstance(cost, int | float) else None,
        currency=str(outputs.get("currency") or ""),
        alerts=tuple(_alerts(outputs)),
        owner=lifecycle.get_owner_name(outputs),
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
