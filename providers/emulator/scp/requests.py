"""The bodies of the document's requests, field by field.

Which fields may be missing or null is that of the official provider: the document lost the table.
"""

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpuform.providers.emulator.scp.errors import Message, refused

_Body = TypeVar("_Body", bound=BaseModel)


class Body(BaseModel):
    """Strict and closed, so that a client's slip shows."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ClusterFabricDetails(Body):
    """Without an id (or with an empty one) a new fabric is made."""

    cluster_fabric_id: str | None = None
    cluster_fabric_name: str
    node_pool_id: str


class ServerDetails(Body):
    gpu_node_name: str
    ip_address: str | None = None
    nat_enabled: bool | None = None
    public_ip_address_id: str | None = None
    server_type_id: str


class Tag(Body):
    key: str | None = None
    value: str | None = None


class CreateGpuNodes(Body):
    cluster_fabric_details: ClusterFabricDetails
    image_id: str
    init_script: str | None = Field(default=None, repr=False)
    lock_enabled: bool | None = None
    os_user_id: str
    os_user_password: str = Field(repr=False)
    region_id: str
    server_details: list[ServerDetails]
    subnet_id: str
    tags: list[Tag] | None = None
    vpc_id: str


class GpuNodeIds(Body):
    """Of delete, start and stop."""

    gpu_node_ids: list[str] = Field(min_length=1)


class ModifyMembers(Body):
    before_cluster_fabric_id: str
    after_cluster_fabric_id: str
    gpu_node_id_list: list[str] = Field(min_length=1)


class AssignPublicNatIp(Body):
    public_ip_address_id: str


def parse(model: type[_Body], data: bytes) -> _Body:
    """The request body as `model`; raises `ApiError` 400 that names every problem, no value."""
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
    raise refused("InvalidRequestBody", *(_told(dict(problem)) for problem in problems))


def _told(problem: dict[str, Any]) -> Message:
    path = ".".join(str(part) for part in problem["loc"]) or "body"
    if problem["type"] == "missing":
        return Message(f"{path}: 필수 항목입니다.", f"{path}: required")
    if problem["type"] == "extra_forbidden":
        return Message(f"{path}: 알 수 없는 항목입니다.", f"{path}: not a field of this request")
    return Message(f"{path}: 올바르지 않은 값입니다.", f"{path}: {problem['msg']}")
