"""The API's versions, and the header that chooses one.

The document ends a deprecated version when its date has come; here it goes on being answered.

Sources: the platform document, 'Version'; the platform's common API reference, 'API Versioning'.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from email.utils import format_datetime
from typing import Any

from gpuform.providers.emulator.scp.errors import Message, refused

HEADER = "Scp-Api-Version"
_SERVICE = "multinodegpucluster"


@dataclass(frozen=True)
class Version:
    number: str
    status: str
    not_before: date | None = None
    """When a deprecated version may end."""

    def view(self, url: str) -> dict[str, Any]:
        return {
            "id": f"v{self.number}",
            "links": [{"href": f"{url}/v1", "rel": "self"}],
            "not_before": "" if self.not_before is None else self.not_before.isoformat(),
            "status": self.status,
        }

    def headers(self) -> dict[str, str]:
        """What an answer tells of its version.

        The document names no mark of a deprecated one; here it is that of RFC 9745 and RFC 8594.
        """
        headers = {HEADER: f"{_SERVICE} {self.number}"}
        if self.not_before is not None:
            end = datetime.combine(self.not_before, time(), UTC)
            headers["Deprecation"] = f"@{int(end.timestamp())}"
            headers["Sunset"] = format_datetime(end, usegmt=True)
        return headers


CURRENT = Version("1.2", "CURRENT")
VERSIONS = (
    CURRENT,
    Version("1.1", "DEPRECATED", date(2026, 3, 31)),
    Version("1.0", "DEPRECATED", date(2025, 12, 31)),
)


def chosen(header: str | None) -> Version:
    """The version of a `Scp-Api-Version` header; the current one without a header."""
    if not header:
        return CURRENT
    for version in VERSIONS:
        if header == f"{_SERVICE} {version.number}":
            return version
    known = ", ".join(f"{_SERVICE} {version.number}" for version in VERSIONS)
    raise refused(
        "UnsupportedApiVersion",
        Message(
            f"지원하지 않는 {HEADER}입니다: {header} (지원: {known})",
            f"{HEADER} {header!r} is not supported; supported: {known}",
        ),
    )
