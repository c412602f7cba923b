"""Whether the GPUs of a resource are idle, as its declaration has it and its platform measures it.

What nobody tells, or tells in figures that cannot be, is never idleness.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuform.schemas.idleness import idleness_of
from gpuform.schemas.notices import Notice, NoticeKind

CAUSE: Final = "idleness"
"""How the words begin that an object's outputs have for a stop by `gpuform expire`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`because` says why it is idle, or why not (yet)."""

    is_idle: bool
    because: str


def is_for_idleness(stopped_by: object) -> bool:
    """Whether an output tells of a stop for idleness."""
    return isinstance(stopped_by, str) and stopped_by.startswith(f"{CAUSE},")


def noticed(values: Mapping[str, Any], *, is_off: bool) -> Iterator[Notice]:
    """What `gpuform expire` may do; nothing by the time alone, so that plans stay the same."""
    idleness = idleness_of(values)
    if idleness is not None and not is_off:
        text = f"`gpuform expire` stops it once each of its GPUs is used {idleness.text}"
        yield Notice(kind=NoticeKind.EXPIRY, text=text)
