"""What there is to know of a TensorOne cluster beside what changes, by its outputs."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.providers.lifetime import left, written
from gpuform.schemas.notices import Notice, NoticeKind
from gpuform.schemas.tensorone.moments import unix_time
from gpuform.schemas.tensorone.statuses import ClusterStatus


def cluster_notices(seen: Mapping[str, Any], now: float) -> Iterator[Notice]:
    """The end that the platform reckons with, and a template that has another version by now.

    `estimated_termination` and `template_version` are of TensorOne's document ('Get Cluster
    Details'). That a cluster keeps the version which it was made from is our reading.
    """
    at = unix_time(_text(seen, "estimated_termination"))
    if at is not None and at > now and _text(seen, "status") == ClusterStatus.RUNNING:
        text = f"ends by itself in {left(at - now)}, at {written(at)} (auto_terminate)"
        yield Notice(kind=NoticeKind.EXPIRY, text=text, at=written(at))
    made, current = _text(seen, "made_from_version"), _text(seen, "template_version")
    if made and current and made != current:
        which = _text(seen, "template_name") or "its template"
        yield Notice(
            kind=NoticeKind.TEMPLATE,
            text=f"{which} is {current} by now, and it was made from {made}: "
            "`gpuform up --replace` with its name makes it anew",
        )


def _text(seen: Mapping[str, Any], name: str) -> str:
    found = seen.get(name)
    return found if isinstance(found, str) else ""
