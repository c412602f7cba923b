"""The versions of the API, and the header that chooses one (SCP reference, 'Version')."""

from collections.abc import Mapping
from datetime import date
from types import MappingProxyType
from typing import Final

HEADER: Final = "Scp-Api-Version"
CURRENT: Final = "1.2"

DEPRECATED: Final[Mapping[str, date]] = MappingProxyType(
    {"1.1": date(2026, 3, 31), "1.0": date(2025, 12, 31)}
)
"""Version -> the day from which it may end ('Not Before')."""


def header_value(version: str) -> str:
    """What the header says to choose a version."""
    return f"multinodegpucluster {version}"
