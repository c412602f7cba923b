"""What tests and people may set of the emulated platform; a reset brings the defaults back."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from gpuform.providers.emulator.settings import Settings as _Settings
from gpuform.providers.emulator.tensorone import FREE_KEY, KEY, PRO_KEY, READER_KEY


class Key(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    tier: Literal["free", "pro", "enterprise"] = "enterprise"
    may_write: bool = True


class Settings(_Settings):
    """Where the platform documents nothing, the defaults are ours."""

    kind = "tensorone.settings"

    keys: Mapping[str, Key] = {
        KEY: Key(),
        FREE_KEY: Key(tier="free"),
        PRO_KEY: Key(tier="pro"),
        READER_KEY: Key(tier="pro", may_write=False),
    }

    cache_seconds: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """For so long a GET answers what it answered before, whatever has changed meanwhile."""

    delete_needs_stopped: bool = False
    """Whether a running cluster is deleted only with `force`; the documentation says both."""

    capacity: Mapping[str, int] = {}
    """Free GPUs of a type, for those that are not without limit."""
