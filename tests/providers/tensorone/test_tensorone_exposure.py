"""Test which ports of a cluster are exposed to the internet, by the platform's rules."""

from typing import Any

import pytest

from gpuform.providers.tensorone.cluster_facts import describe_cluster_exposure
from gpuform.schemas.values import UNKNOWN

CLOSED = {"firewall_rules": [{"source": "10.0.0.0/8", "port_range": "22", "protocol": "tcp"}]}


@pytest.mark.parametrize(
    ("rule", "ports"),
    [
        ({"source": "0.0.0.0/0", "port_range": "22", "protocol": "tcp"}, ("22/tcp",)),
        ({"source": "::/0", "port_range": "80-90", "direction": "inbound"}, ("80-90",)),
        ({"source": " ANY "}, ("all ports",)),
        ({"port_range": "22", "direction": "sideways"}, ("22",)),
        ({"source": "10.0.0.0/8", "port_range": "22"}, ()),
        ({"source": "0.0.0.0/0", "port_range": "22", "direction": "outbound"}, ()),
        ({"source": "sg_team", "port_range": "22"}, ()),
    ],
)
def test_a_rule_exposes_its_port(rule: Any, ports: Any) -> None:
    cluster_exposure = describe_cluster_exposure({}, {"firewall_rules": [rule, "nonsense"]})
    assert (cluster_exposure.ports if cluster_exposure else ()) == ports


@pytest.mark.parametrize(
    ("values", "observed", "unknown"),
    [
        ({}, {}, "once it exists"),
        ({"ssh_enabled": UNKNOWN}, {}, "once it exists"),
        ({"ssh_enabled": False, "security_groups": ["sg"]}, {}, "once it exists"),
        ({"ssh_enabled": False}, {}, ""),
        ({}, {"status": "running"}, "run `gpuform refresh`"),
        ({"security_groups": ["a"]}, {**CLOSED, "security_groups": ["b"]}, "security_groups may"),
        ({"security_groups": UNKNOWN}, {**CLOSED, "security_groups": ["b"]}, "may open some"),
        ({"security_groups": ["b"]}, {**CLOSED, "security_groups": ["b"]}, ""),
        ({}, CLOSED, ""),
    ],
)
def test_unreadable_rules_are_reported_as_unknown(values: Any, observed: Any, unknown: str) -> None:
    cluster_exposure = describe_cluster_exposure(values, observed)
    assert (
        (cluster_exposure is None)
        if not unknown
        else (cluster_exposure is not None and unknown in cluster_exposure.unknown)
    )
