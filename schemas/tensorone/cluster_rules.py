"""The rules over several fields of a TensorOne cluster.

Each gets what is declared; UNKNOWN is a value not known yet, and a rule that needs it says nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from gpuform.schemas.models import Problem
from gpuform.schemas.values import UNKNOWN

Values = Mapping[str, Any]


def cluster_problems(values: Values) -> Iterator[Problem]:
    return chain(_image(values), _ports(values), _snapshots(values))


def _image(values: Values) -> Iterator[Problem]:
    if values.get("template_id") is not None and values.get("docker_image") is not None:
        yield Problem(
            "docker_image",
            "does not go with template_id, which has an image of its own: keep one of the two",
        )


def _ports(values: Values) -> Iterator[Problem]:
    mappings = values.get("port_mappings")
    if not isinstance(mappings, Sequence):
        return
    for name in ("internal_port", "external_port"):
        seen = set()
        for at, mapping in enumerate(mappings):
            port = mapping.get(name) if isinstance(mapping, Mapping) else None
            protocol = mapping.get("protocol") or "tcp" if isinstance(mapping, Mapping) else None
            if port is None or UNKNOWN in (port, protocol):
                continue
            if (port, protocol) in seen:
                yield Problem(
                    f"port_mappings[{at}].{name}", f"{port}/{protocol} is there twice: keep one"
                )
            seen.add((port, protocol))


def _snapshots(values: Values) -> Iterator[Problem]:
    if values.get("final_snapshot_name") is None:
        return
    if (
        values.get("final_snapshot") in (None, False)
        and values.get("final_snapshot") is not UNKNOWN
    ):
        yield Problem(
            "final_snapshot_name", "goes with final_snapshot only: remove it, or declare it true"
        )
