"""The GPU types that are known by name. The list is open: platforms add types at any time."""

import re
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Final

GPU_TYPES: Final = (
    "H100_SXM",
    "H200_SXM",
    "B200_SXM",
    "H100_SXM_INF",
    "RTX_6000_PCI",
    "L40_PCIE",
    "B300_SXM",
    "GB200_SXM",
)
"""Together reference, 'Create a Cluster' (the first four), and the types of the platform's SDKs."""


def unknown_gpu_type(value: str) -> bool:
    """Whether a type is neither known nor a misspelling of a known one: warn, do not refuse."""
    return value not in GPU_TYPES and nearest_gpu_type(value) is None


def nearest_gpu_type(value: str) -> str | None:
    """The known type that ``value`` was meant to be.

    Only the spelling may differ: ``h100-sxm`` and ``H100_SMX`` are H100_SXM, while H800_SXM and
    L40S_PCIE name other hardware.
    """
    scores = {name: _likeness(value, name) for name in GPU_TYPES}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] > 0 else None


def checked_gpu_type(value: str) -> str:
    meant = None if value in GPU_TYPES else nearest_gpu_type(value)
    if meant:
        raise ValueError(f"{value} is not a GPU type: did you mean {meant}?")
    return value


def _likeness(value: str, name: str) -> float:
    """How much ``value`` looks like a misspelling of ``name``; 0 when it does not at all."""
    words = re.findall(r"[A-Z0-9]+", value.upper())
    given, known = "".join(words), name.replace("_", "")
    model = re.match(r"[A-Z]+\d+", known)
    if model is None or not _names_model(words, model[0]):
        return 0
    if given == model[0]:
        return 0.8
    if re.findall(r"\d+", given) != re.findall(r"\d+", known):
        return 0
    ratio = SequenceMatcher(None, given[model.end() :], known[model.end() :]).ratio()
    return ratio if ratio >= 0.6 else 0


def _names_model(words: list[str], model: str) -> bool:
    """Whether the first words are the model, all of it and no more; one word may hold the rest."""
    starts = accumulate(words)
    return model in starts or (len(words) == 1 and words[0].startswith(model))
