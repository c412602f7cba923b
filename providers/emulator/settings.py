"""What tests and people may set of an emulated platform; a reset brings the defaults back."""

from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict

from gpuform.providers.emulator.store import Store

_ONLY = "settings"


class Settings(BaseModel):
    """Those of one platform, kept in the store under `kind`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: ClassVar[str]

    @classmethod
    def load(cls, store: Store) -> Self:
        kept = store.get(cls.kind, _ONLY)
        return cls() if kept is None else cls.model_validate_json(kept)

    def keep(self, store: Store) -> None:
        store.put(self.kind, _ONLY, self.model_dump_json())

    def shown(self) -> dict[str, Any]:
        """What everybody may see of them."""
        return self.model_dump(mode="json")
