"""Which sections and platforms a topology can name."""

from gpuform.providers.catalog import platforms_with
from gpuform.providers.platforms import platforms, unusable_platforms
from gpuform.schemas.reasons import nearest
from gpuform.schemas.topology import SECTIONS, TopologyInputs
from gpuform.stacks.document.diagnostics import Diagnostics, Place
from gpuform.stacks.document.nodes import MappingNode

TOP_LEVEL = (*TopologyInputs.model_fields, *SECTIONS)
ANCHORS = "x-"
"""Top-level keys that begin so are left alone: a place for anchors."""


def check_keys(root: MappingNode, problems: Diagnostics) -> None:
    """What a file has at its top that is not known goes to `problems`."""
    for key, entry in root.entries.items():
        if key not in TOP_LEVEL and not key.startswith(ANCHORS):
            hint = _hint(key, TOP_LEVEL)
            problems.add(entry.place, "unknown-key", f"{key} is not known", hint)


def is_section(section: str, place: Place, problems: Diagnostics) -> bool:
    """Whether a section is one; else that goes to `problems`."""
    if section in SECTIONS:
        return True
    hint = _hint(section, tuple(SECTIONS))
    problems.add(place, "unknown-key", f"{section} is no section", hint)
    return False


def has_kind(platform: str, section: str, place: Place, problems: Diagnostics) -> bool:
    """Whether a platform has what a section declares; else that goes to `problems`."""
    kind = SECTIONS[section]
    having = platforms_with(kind)
    if platform in having:
        return True
    broken = unusable_platforms().get(platform)
    if broken is not None:
        because = f"the platform {platform} cannot be used: {broken.because}"
        problems.add(place, "platform", because, broken.hint)
        return False
    known = platform in platforms()
    message = f"{platform} has no {kind}" if known else f"{platform} is not a platform"
    near = nearest(platform, tuple(having))
    hint = f"did you mean {near}?" if near else f"{kind} is on {' and '.join(having)}"
    problems.add(place, "platform", message, hint)
    return False


def _hint(key: str, known: tuple[str, ...]) -> str:
    near = nearest(key, known)
    return f"did you mean {near}?" if near else f"use one of {', '.join(known)}"
