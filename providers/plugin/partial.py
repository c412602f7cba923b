"""How a call fails; and with it what exists already, for Pulumi to keep and to try again."""

from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import provider_pb2, status_pb2

_TYPE = "type.googleapis.com/pulumirpc.ErrorResourceInitFailed"
_UNKNOWN = 2
"""gRPC's number of the code UNKNOWN, which Pulumi's engine takes for a provider's own errors."""


@dataclass(frozen=True, slots=True)
class Status(grpc.Status):  # type: ignore[misc]  # grpc ships no types
    """The status of a call that failed: the user is shown `details` as it is."""

    details: str
    trailing_metadata: tuple[tuple[str, bytes], ...] = ()
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN


class PartialFailure(Exception):
    """Raised once there is an id, so that the object gets into the state with the reasons."""

    def __init__(
        self, id_: str, properties: Struct, inputs: Struct, reasons: Sequence[str]
    ) -> None:
        super().__init__("; ".join(reasons))
        self._detail = provider_pb2.ErrorResourceInitFailed(
            id=id_, properties=properties, inputs=inputs, reasons=reasons
        )

    @property
    def status(self) -> Status:
        """The status of the call, its details where Pulumi's engine looks for them."""
        packed = AnyMessage(type_url=_TYPE, value=self._detail.SerializeToString())
        status = status_pb2.Status(code=_UNKNOWN, message=str(self), details=[packed])
        return Status(str(self), (("grpc-status-details-bin", status.SerializeToString()),))
