"""Know CUDA and NVIDIA driver versions and GPU types by name.

The list of GPU types is open: platforms add types at any time.

The documented request has ``driver_version: CUDA_12_6_560``; the live service answers 400 "cuda
version and nvidia driver version are required" to it alone (Together GPU clusters skill, API
reference), so the pair is always sent.
"""

import re
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Final

_NAME = re.compile(r"CUDA_(\d+)_(\d+)_(\d+(?:_\d+)*)")
_CUDA = re.compile(r"(\d+)\.(\d+)(?![\d.])")


def driver_pair(driver_version: str) -> tuple[str, str]:
    """``CUDA_12_6_560`` -> CUDA "12.6" and NVIDIA driver "560". ValueError for any other form."""
    match = _NAME.fullmatch(driver_version)
    if match is None:
        raise ValueError(
            f"{driver_version} is not a driver version: "
            "write CUDA_<major>_<minor>_<driver>, such as CUDA_12_6_560"
        )
    major, minor, driver = match.groups()
    return f"{major}.{minor}", driver.replace("_", ".")


def driver_name(cuda_version: str, nvidia_driver_version: str) -> str:
    """The name of a pair; the operating system after a CUDA version is not part of it.

    ValueError when the CUDA version does not begin with major and minor.
    """
    match = _CUDA.match(cuda_version)
    if match is None:
        raise ValueError(f"{cuda_version} is not a CUDA version: write it like 12.6")
    return f"CUDA_{match[1]}_{match[2]}_{nvidia_driver_version.replace('.', '_')}"


def checked_driver_version(value: str) -> str:
    driver_pair(value)
    return value


def checked_cuda_version(value: str) -> str:
    driver_name(value, "")
    return value


def checked_nvidia_driver_version(value: str) -> str:
    if re.fullmatch(r"\d+(\.\d+)*", value) is None:
        raise ValueError(f"{value} is not an NVIDIA driver version: write it like 560")
    return value


def is_same_version(one: str, other: str) -> bool:
    """Whether two answers name one version, one of them in more detail.

    "560" is "560.35.03", and "12.6" is "12.6-ubuntu-22.04"; "12.1" is not "12.10".
    """
    short, long = sorted((one, other), key=len)
    return long.startswith(short) and not long[len(short) : len(short) + 1].isalnum()


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
