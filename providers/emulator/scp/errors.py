"""Build SCP's error answers, with messages in Korean and English.

All modules of `scp` raise these errors; `routes` answers them in the language of the request.
"""

from dataclasses import dataclass
from http.client import responses
from typing import Any

from gpuform.providers.emulator.routing import Refusal


@dataclass(frozen=True)
class ScpMessage:
    """A message in the two languages of the platform."""

    korean: str
    english: str

    def get_text(self, language: str) -> str:
        """Return the text for an Accept-Language code: English for `en...`, else Korean."""
        return self.english if language.lower().startswith("en") else self.korean


class ScpApiError(Refusal):
    """Raised where SCP refuses: answered as `{"errors": [...]}` with this status.

    `detail` is a text for one message and a list of texts for several: clients of the platform meet
    both forms.
    """

    def __init__(self, status: int, code: str, *messages: ScpMessage) -> None:
        super().__init__(status, "; ".join(message.english for message in messages))
        self.code = code
        self.messages = messages

    def build_body(self, language: str, request_id: str) -> dict[str, Any]:
        """Return the body of the answer, in `language` (an Accept-Language code)."""
        texts = [message.get_text(language) for message in self.messages]
        return {
            "errors": [
                {
                    "detail": texts[0] if len(texts) == 1 else texts,
                    "status": self.status,
                    "title": responses.get(self.status, ""),
                    "code": self.code,
                    "request_id": request_id,
                }
            ]
        }


def make_bad_request(code: str, *messages: ScpMessage) -> ScpApiError:
    """Return a 400: the document lists no other code for a broken rule."""
    return ScpApiError(400, code, *messages)


def make_node_not_found(node_id: str) -> ScpApiError:
    """Return the 404 for a missing GPU node."""
    return ScpApiError(
        404,
        "GpuNodeNotFound",
        ScpMessage(
            f"GPU Node({node_id})를 찾을 수 없습니다.", f"GPU Node ({node_id}) is not found."
        ),
    )


def make_fabric_not_found(fabric_id: str) -> ScpApiError:
    """Return the 404 for a missing cluster fabric."""
    return ScpApiError(
        404,
        "ClusterFabricNotFound",
        ScpMessage(
            f"Cluster Fabric({fabric_id})을 찾을 수 없습니다.",
            f"Cluster Fabric ({fabric_id}) is not found.",
        ),
    )
