"""CUDA and NVIDIA driver versions: the one name, and the pair that the platform needs.

The documented request has ``driver_version: CUDA_12_6_560``; the live service answers 400 "cuda
version and nvidia driver version are required" to it alone (Together GPU clusters skill, API
reference), so the pair is always sent.
"""

import re

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
