"""Parse CUDA and NVIDIA driver versions, and recognize misspelled GPU types.

Used by the inputs, requests and lookups of Together. The list of GPU types is open: platforms add
types at any time. The documented request has ``driver_version: CUDA_12_6_560``; the live service
answers 400 "cuda version and nvidia driver version are required" to it alone (Together GPU clusters
skill, API reference), so the pair is always sent.
"""

import re
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Final

_DRIVER_VERSION = re.compile(r"CUDA_(\d+)_(\d+)_(\d+(?:_\d+)*)")
_CUDA_VERSION = re.compile(r"(\d+)\.(\d+)(?![\d.])")
_OPERATING_SYSTEM = re.compile(r"ubuntu[- _]?(\d+\.\d+)", re.IGNORECASE)


def parse_driver_version(driver_version: str) -> tuple[str, str]:
    """Return the CUDA version "12.6" and driver version "560" of ``CUDA_12_6_560``.

    Raises:
        ValueError: the text has another form.
    """
    match = _DRIVER_VERSION.fullmatch(driver_version)
    if match is None:
        raise ValueError(
            f"{driver_version} is not a driver version: "
            "write CUDA_<major>_<minor>_<driver>, such as CUDA_12_6_560"
        )
    # a driver may have several parts: 520_61_05 is 520.61.05
    major, minor, driver = match.groups()
    return f"{major}.{minor}", driver.replace("_", ".")


def format_driver_version(cuda_version: str, nvidia_driver_version: str) -> str:
    """Return CUDA and driver version as one name, ``CUDA_12_6_560``.

    An operating system in the CUDA version (12.6-ubuntu-22.04) is left out.

    Raises:
        ValueError: the CUDA version does not begin with major and minor.
    """
    # an operating system may follow, as in 12.6-ubuntu-22.04
    match = _CUDA_VERSION.match(cuda_version)
    if match is None:
        raise ValueError(f"{cuda_version} is not a CUDA version: write it like 12.6")
    return f"CUDA_{match[1]}_{match[2]}_{nvidia_driver_version.replace('.', '_')}"


def parse_operating_system(name: str) -> str | None:
    """Return the system (`ubuntu-22.04`) in the name of a CUDA version, driver or image, or None.

    None if the text names no release of Ubuntu, the only system of Together's lists.
    """
    match = _OPERATING_SYSTEM.search(name)
    return match and f"ubuntu-{match[1]}"


def validate_driver_version(value: str) -> str:
    """Return ``value`` if of the form ``CUDA_12_6_560``. Raises ValueError otherwise."""
    parse_driver_version(value)
    return value


def validate_cuda_version(value: str) -> str:
    """Return ``value`` if it begins as a CUDA version, such as 12.6 or 12.6-ubuntu-22.04.

    Raises ValueError otherwise.
    """
    format_driver_version(value, "")
    return value


def validate_nvidia_driver_version(value: str) -> str:
    """Return ``value`` if a driver version such as 560 or 560.35.03.

    Raises ValueError otherwise.
    """
    if re.fullmatch(r"\d+(\.\d+)*", value) is None:
        raise ValueError(f"{value} is not an NVIDIA driver version: write it like 560")
    return value


def is_same_version(left: str, right: str) -> bool:
    """Return True if two texts name one version, possibly in different detail.

    "560" is "560.35.03", and "12.6" is "12.6-ubuntu-22.04"; "12.1" is not "12.10".
    """
    short, long = sorted((left, right), key=len)
    # the next character must end the number: 12.1 is no beginning of 12.10
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
"""Known types: Together reference, 'Create a Cluster' (the first four), and the SDKs."""


def get_node_gpus(gpu_type: str | None) -> int:
    """Return how many GPUs a node of a type has: 4 beside Grace or Vera processors, else 8.

    The documentation of a cluster names 8 and, for GB200, 4; nodes of GB300 and VR200 have 4, too
    (NVIDIA/aicr#2871). No endpoint reports the number before the first worker.
    """
    return 4 if (gpu_type or "").startswith(("GB200", "GB300", "VR200")) else 8


def is_unknown_gpu_type(value: str) -> bool:
    """Return True if a GPU type is neither known nor close to a known one in spelling.

    The platform may have added the type, so such a type is a reason to warn, not to refuse.
    """
    return value not in GPU_TYPES and find_nearest_gpu_type(value) is None


def find_nearest_gpu_type(value: str) -> str | None:
    """Return the known type with a spelling like ``value``, or None.

    Only the spelling may differ: ``h100-sxm`` and ``H100_SMX`` are H100_SXM, while H800_SXM and
    L40S_PCIE name other hardware.
    """
    scores = {name: _rate_likeness(value, name) for name in GPU_TYPES}
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] > 0 else None


def validate_gpu_type(value: str) -> str:
    """Return ``value`` unless misspelled: a value close to a known GPU type, such as ``h100-sxm``.

    An unknown type passes, because the platform may have added the type.

    Raises ValueError with the known type.
    """
    # an unknown type may be a new one, so only misspellings are refused
    nearest_type = None if value in GPU_TYPES else find_nearest_gpu_type(value)
    if nearest_type:
        raise ValueError(f"{value} is not a GPU type: did you mean {nearest_type}?")
    return value


def _rate_likeness(value: str, name: str) -> float:
    """Return how much ``value`` looks like a misspelling of ``name``, from 0 (not at all) to 1."""
    words = re.findall(r"[A-Z0-9]+", value.upper())
    compact_value, compact_name = "".join(words), name.replace("_", "")
    model = re.match(r"[A-Z]+\d+", compact_name)
    if model is None or not _begins_with_model(words, model[0]):
        return 0
    if compact_value == model[0]:
        # the model alone, such as H100, is a shorter name of a type
        return 0.8
    # other digits name other hardware
    if re.findall(r"\d+", compact_value) != re.findall(r"\d+", compact_name):
        return 0
    ratio = SequenceMatcher(None, compact_value[model.end() :], compact_name[model.end() :]).ratio()
    return ratio if ratio >= 0.6 else 0


def _begins_with_model(words: list[str], model: str) -> bool:
    """Return True if the first words are the model, or the only word begins with the model."""
    starts = accumulate(words)
    return model in starts or (len(words) == 1 and words[0].startswith(model))
