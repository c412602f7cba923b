"""What tests and people may set of the registry; a reset brings the defaults back."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from gpuform.providers.emulator.store import Store

_KIND = "aios.settings"
_ONLY = "settings"


class Settings(BaseModel):
    """Where deployed registries differ from each other."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    query_envelope: Literal["both", "raw", "wrapped"] = "both"
    """What a query's body is: the filter itself, `{"query": filter}`, or either."""

    parser_failure: str | None = None
    """What the Parser says of creates, all of which fail below it, in an answer of 200."""

    keeps_status: bool = True
    """Whether records have a status: the reference says so, older code has none."""


def load(store: Store) -> Settings:
    kept = store.get(_KIND, _ONLY)
    return Settings() if kept is None else Settings.model_validate_json(kept)


def keep(store: Store, settings: Settings) -> None:
    store.put(_KIND, _ONLY, settings.model_dump_json())
