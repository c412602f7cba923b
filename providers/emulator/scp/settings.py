"""What tests and people may set of the emulated platform; a reset brings the defaults back."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer

from gpuform.providers.emulator.scp import (
    ACCESS_KEY,
    SECRET_KEY,
    VIEWER_ACCESS_KEY,
    VIEWER_SECRET_KEY,
)
from gpuform.providers.emulator.settings import Settings as _Settings


class KeyPair(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    secret_key: SecretStr = Field(min_length=1)
    may_write: bool = True

    @field_serializer("secret_key", when_used="json")
    def _kept(self, secret_key: SecretStr) -> str:
        return secret_key.get_secret_value()


class Settings(_Settings):
    """Where the platform documents nothing, the defaults are ours."""

    kind = "scp.settings"

    keys: Mapping[str, KeyPair] = {
        ACCESS_KEY: KeyPair(secret_key=SecretStr(SECRET_KEY)),
        VIEWER_ACCESS_KEY: KeyPair(secret_key=SecretStr(VIEWER_SECRET_KEY), may_write=False),
    }
    """Known pairs by access key."""

    clock_ahead_seconds: float = Field(default=0.0, allow_inf_nan=False)
    """How far the platform's clock, against which requests are signed, is ahead of the real one."""

    accepted_skew_seconds: float = Field(default=900.0, ge=0, allow_inf_nan=False)
    """How far a request's timestamp may be from the platform's clock."""

    capacity: Mapping[str, int] = {}
    """Servers of vendor pools, by pool id, instead of the catalogue's number."""

    joining_one_allowed: bool = True
    """Whether one server may join a fabric that exists; else two at least."""

    joining_while_creating: bool = False
    """Whether servers may join a fabric that is still CREATING."""

    create_answer: Literal["first", "all", "more", "foreign", "none"] = "first"
    """Which `resource_id` answers a create: that of its first node as in the document, those of all
    its nodes, these and one of no node, one of no node, or none."""

    appears_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How long after the answer lists and GET still lack a new node."""

    reaction_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How long an accepted action does not show: the old state stays meanwhile."""

    terminated_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """How long a node that is gone still shows, as TERMINATED; 0: it is 404 at once."""

    def shown(self) -> dict[str, Any]:
        """Without the secret keys."""
        return self.model_dump(mode="json", exclude={"keys": {"__all__": {"secret_key"}}})
