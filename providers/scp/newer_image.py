"""Images that are newer than the one that nodes were made with: told, and never a change.

SCP reference, 'List GPU Node images': an image has a distribution, a type and a version of its
system (`os_distro`, `scp_image_type`, `scp_os_version`). What else sets two apart is in their names
alone (`RHEL 8.8 for BM`): only those whose names differ in nothing but numbers are compared.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from gpuform.providers.actions import Observed
from gpuform.providers.calls import Call
from gpuform.providers.errors import GpuformError
from gpuform.providers.scp import offers
from gpuform.providers.scp.client import ScpClient
from gpuform.schemas.notices import Notice, NoticeKind
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.outputs import GpuNodeOutputs, NewerImageOutputs, NodePoolOutputs

Out = TypeVar("Out", GpuNodeOutputs, NodePoolOutputs)


def with_newer_image(
    client: ScpClient, call: Call, values: Mapping[str, Any], seen: Observed[Out]
) -> Observed[Out]:
    """What was seen, and the newest image of the same kind as that of `values`, if one is newer.

    One list for each region and process. Without an answer what was known stays.
    """
    image, region = values.get("image_id"), values.get("region_id")
    if not isinstance(image, str) or not isinstance(region, str):
        return seen
    try:
        found = newest(offers.images(client, region), image)
    except GpuformError:
        found = _stored(call.known.get("newer_image"))
    return replace(seen, outputs=seen.outputs.model_copy(update={"newer_image": found}))


def newest(offered: Sequence[wire.Image], image_id: str) -> NewerImageOutputs | None:
    """The newest image of the same distribution and kind; None where the image is that."""
    own = next((each for each in offered if each.id == image_id), None)
    version = _version(own) if own else None
    if own is None or version is None:
        return None
    later = [
        (other, each)
        for each in offered
        if _kind(each) == _kind(own) and (other := _version(each)) is not None and other > version
    ]
    if not later:
        return None
    best = max(later, key=lambda each: (each[0], each[1].id))[1]
    return NewerImageOutputs(id=best.id, name=best.name)


def image_notices(seen: Mapping[str, Any]) -> Iterator[Notice]:
    """That there is a newer image, by the outputs last seen."""
    newer = seen.get("newer_image")
    if isinstance(newer, Mapping) and newer.get("id"):
        yield Notice(
            kind=NoticeKind.IMAGE,
            text=f"there is a newer image of its system: {newer['id']} ({newer.get('name')}). "
            "Another image_id replaces the nodes",
        )


def _stored(before: Any) -> NewerImageOutputs | None:
    if not isinstance(before, Mapping) or not isinstance(before.get("id"), str):
        return None
    return NewerImageOutputs(id=before["id"], name=str(before.get("name") or ""))


def _kind(image: wire.Image) -> Iterable[str]:
    return image.os_distro, image.scp_image_type, re.sub(r"[0-9][0-9.]*", "#", image.name)


def _version(image: wire.Image) -> tuple[int, ...] | None:
    """None where it is no version, or nobody says of what."""
    is_one = image.os_distro and re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})*", image.scp_os_version)
    return tuple(map(int, image.scp_os_version.split("."))) if is_one else None
