"""Properties that a program or a language host sends."""

from typing import TYPE_CHECKING

from gpuform.providers import values
from gpuform.stacks.engine.errors import EngineError

if TYPE_CHECKING:
    from google.protobuf.struct_pb2 import Struct


def from_struct(struct: "Struct") -> values.PropertyMap:
    """The properties that a protobuf Struct carries, by name; EngineError names a senseless one."""
    try:
        return values.from_struct(struct)
    except ValueError as error:
        hint = "Upgrade gpuform, or use the Pulumi CLI for this program."
        raise EngineError(str(error), hint=hint) from error
