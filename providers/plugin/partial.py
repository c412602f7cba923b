"""An object that exists and is not as wanted: Pulumi keeps it and tries again at the next run."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Never

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import provider_pb2, status_pb2

_TYPE = "type.googleapis.com/pulumirpc.ErrorResourceInitFailed"


class PartialFailure(Exception):
    """Raised once there is an id, so that the object gets into the state with the reasons."""

    def __init__(self, id_: str, properties: Struct, inputs: Struct, reasons: Sequence[str]) -> None:
        super().__init__("; ".join(reasons))
        self._detail = provider_pb2.ErrorResourceInitFailed(
            id=id_, properties=properties, inputs=inputs, reasons=reasons
        )

    def abort(self, context: grpc.ServicerContext) -> Never:
        """Ends the call with the error, its details where Pulumi's engine looks for them."""
        code, _ = grpc.StatusCode.UNKNOWN.value
        packed = AnyMessage(type_url=_TYPE, value=self._detail.SerializeToString())
        status = status_pb2.Status(code=code, message=str(self), details=[packed])
        context.abort_with_status(
            _Status(
                grpc.StatusCode.UNKNOWN,
                str(self),
                (("grpc-status-details-bin", status.SerializeToString()),),
            )
        )


@dataclass(frozen=True)
class _Status(grpc.Status):  # type: ignore[misc]  # grpc ships no types
    code: grpc.StatusCode
    details: str
    trailing_metadata: tuple[tuple[str, bytes], ...]
