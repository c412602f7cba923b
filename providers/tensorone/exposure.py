"""Which ports of a TensorOne cluster the whole world reaches, by its firewall rules.

The document shows the rules of a cluster that is there (`network.firewall_rules`), and not what it
opens for a new one.
"""

from collections.abc import Iterator, Mapping
from ipaddress import ip_network
from typing import Any, Final

from gpuform.schemas.exposure import Exposure
from gpuform.schemas.values import contains_unknown, same

_OPENING: Final = ("port_mappings", "security_groups")
_OUTWARD: Final = ("outbound", "egress")


def cluster_exposure(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Exposure | None:
    """By what was seen; of a cluster that is not there, only that nothing is to be opened."""
    if not seen:
        opening = any(values.get(name) not in (None, []) for name in _OPENING)
        is_closed = values.get("ssh_enabled") is False and not opening
        text = "TensorOne shows the firewall rules of a cluster once it is there"
        return None if is_closed else Exposure(unknown=text)
    rules = seen.get("firewall_rules")
    if not isinstance(rules, list):
        return Exposure(unknown="they were not seen yet: run `gpuform refresh`")
    ports = tuple(dict.fromkeys(_open_ports(rules)))
    changed = [name for name in _OPENING if _is_changed(values, seen, name)]
    text = f"a change of {' and '.join(changed)} may open some" if changed else ""
    return Exposure(ports=ports, unknown=text) if ports or text else None


def _is_changed(values: Mapping[str, Any], seen: Mapping[str, Any], name: str) -> bool:
    declared, known = values.get(name), seen.get(name)
    if declared is None:
        return False
    if contains_unknown(declared) or not isinstance(known, list):
        return True
    return not same(sorted(declared, key=repr), sorted(known, key=repr))


def _open_ports(rules: list[Any]) -> Iterator[str]:
    """Such as `22/tcp`. A rule that does not say for whom it is, is for all."""
    for rule in rules:
        if not isinstance(rule, Mapping):
            continue
        if str(rule.get("direction") or "").casefold() in _OUTWARD:
            continue
        if _is_all_the_world(str(rule.get("source") or "")):
            ports = rule.get("port_range") or "all ports"
            protocol = rule.get("protocol")
            yield f"{ports}/{protocol}" if protocol else str(ports)


def _is_all_the_world(source: str) -> bool:
    try:
        return ip_network(source.strip(), strict=False).prefixlen == 0
    except ValueError:
        return source.strip().casefold() in ("", "*", "any", "all")
