"""What a stack's operations did, as Pulumi keeps it and `pulumi stack history` shows it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.engine.values import Json, dump, load

IN_PROGRESS: Final = "in-progress"
"""The result of an operation that has not ended, or that could not tell how it ended."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What one operation did. Times are Unix seconds.

    `result` is succeeded, failed or in-progress; `config` is the stack file's, with its
    ciphertexts; `environment` says who did it and from where (`origin`).
    """

    kind: str
    result: str
    start_time: int
    end_time: int
    resource_changes: Mapping[str, int] = field(default_factory=dict)
    config: Mapping[str, Json] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: {"exec.kind": "cli"})
    message: str = ""
    version: int = 0

    def to_json(self) -> bytes:
        """The text of the file."""
        return dump(
            {
                "kind": self.kind,
                "startTime": self.start_time,
                "message": self.message,
                "environment": dict(self.environment),
                "config": dict(self.config),
                "version": self.version,
                "result": self.result,
                "endTime": self.end_time,
                "resourceChanges": dict(self.resource_changes),
            }
        )

    @classmethod
    def from_json(cls, text: bytes) -> "HistoryEntry":
        """The entry in a file's text; ValueError when it is none."""
        document = load(text)
        if not isinstance(document, dict) or "kind" not in document:
            raise ValueError("it is no entry of a history")
        return cls(
            kind=str(document["kind"]),
            result=str(document.get("result") or ""),
            start_time=_whole(document.get("startTime")),
            end_time=_whole(document.get("endTime")),
            resource_changes={k: _whole(n) for k, n in _table(document, "resourceChanges").items()},
            config=_table(document, "config"),
            environment={k: str(text) for k, text in _table(document, "environment").items()},
            message=str(document.get("message") or ""),
            version=_whole(document.get("version")),
        )


def _table(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = document.get(key) or {}
    if not isinstance(found, dict):
        raise ValueError(f"its {key} is not an object")  # noqa: TRY004 - bad data, not a bad call
    return found


def _whole(value: Any) -> int:
    if not isinstance(value, int | float | None):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 - as above
    return int(value or 0)
