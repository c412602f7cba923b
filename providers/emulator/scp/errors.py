"""A refusal, as the platform would answer it, in its two languages."""

from dataclasses import dataclass
from http.client import responses
from typing import Any

from gpuform.providers.emulator.routing import Refusal


@dataclass(frozen=True)
class Message:
    korean: str
    english: str

    def told(self, language: str) -> str:
        return self.english if language.lower().startswith("en") else self.korean


class ApiError(Refusal):
    """Answered as `{"errors": [...]}` with this status.

    `detail` is a text for one message and a list of texts for several: clients of the platform
    meet both forms.
    """

    def __init__(self, status: int, code: str, *messages: Message) -> None:
        super().__init__(status, "; ".join(message.english for message in messages))
        self.code = code
        self.messages = messages

    def body(self, language: str, request_id: str) -> dict[str, Any]:
        told = [message.told(language) for message in self.messages]
        return {
            "errors": [
                {
                    "detail": told[0] if len(told) == 1 else told,
                    "status": self.status,
                    "title": responses.get(self.status, ""),
                    "code": self.code,
                    "request_id": request_id,
                }
            ]
        }


def refused(code: str, *messages: Message) -> ApiError:
    """400: the document lists no other code for what breaks a rule."""
    return ApiError(400, code, *messages)


def no_node(node_id: str) -> ApiError:
    return ApiError(
        404,
        "GpuNodeNotFound",
        Message(f"GPU Node({node_id})를 찾을 수 없습니다.", f"GPU Node ({node_id}) is not found."),
    )


def no_fabric(fabric_id: str) -> ApiError:
    return ApiError(
        404,
        "ClusterFabricNotFound",
        Message(
            f"Cluster Fabric({fabric_id})을 찾을 수 없습니다.",
            f"Cluster Fabric ({fabric_id}) is not found.",
        ),
    )
