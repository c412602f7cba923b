"""A cluster's credential, as its platform gives it out, under a name of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import SecretStr

from gpuform.providers.errors import MissingCredentials
from gpuform.providers.kubernetes.kubeconfig import parts_of
from gpuform.schemas.ids import checked_id
from gpuform.schemas.visible import shortened, visible
from gpuform.stacks.access.errors import NoAccess
from gpuform.stacks.access.marks import Mark


@dataclass(frozen=True, slots=True)
class Credential:
    """What a kubeconfig is to say of one cluster; `held` is by section, and holds secrets."""

    name: str
    mark: Mark
    held: Mapping[str, Mapping[str, Any]] = field(repr=False)

    @classmethod
    def read(cls, name: str, mark: Mark, text: SecretStr) -> Self:
        """The current context of a platform's kubeconfig, else its first one.

        Raises EngineError, without a word of the text, when it has none, when it asks for more than
        to be signed in, and when the name cannot be that of a context.
        """
        try:
            checked_id(name)
        except ValueError as error:
            raise NoAccess(
                f"{shortened(visible(name), 80)!r} cannot be the name of a context: it {error}",
                hint="Nothing was written. Give it another one with --context NAME.",
            ) from None
        try:
            parts = parts_of(text.get_secret_value(), name)
        except MissingCredentials as error:
            raise NoAccess(error.message, hint=f"Nothing was written. {error.hint}") from None
        held = {
            "clusters": parts.cluster.said(),
            "users": parts.user.said(),
            "contexts": {**parts.context.said(), "cluster": name, "user": name},
        }
        return cls(name, mark, held)
