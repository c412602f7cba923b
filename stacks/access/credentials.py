"""A cluster's credential, as its platform gives it out, under a name of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import yaml
from pydantic import SecretStr

from gpuform.stacks.access.marks import Mark
from gpuform.stacks.engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Credential:
    """What a kubeconfig is to say of one cluster; `held` is by section, and holds secrets."""

    name: str
    mark: Mark
    held: Mapping[str, Mapping[str, Any]] = field(repr=False)

    @classmethod
    def read(cls, name: str, mark: Mark, text: SecretStr) -> Self:
        """The current context of a platform's kubeconfig, else its first one.

        Raises EngineError, without a word of the text, when it has none.
        """
        try:
            document = yaml.safe_load(text.get_secret_value())
            contexts = _entries(document, "contexts", "context")
            context = contexts.get(document.get("current-context")) or next(iter(contexts.values()))
            cluster = _entries(document, "clusters", "cluster")[context["cluster"]]
            user = _entries(document, "users", "user")[context["user"]]
        except (yaml.YAMLError, AttributeError, KeyError, TypeError, StopIteration):
            raise EngineError(
                f"what the platform gave out for {name} is no kubeconfig",
                hint="`gpuform refresh` asks for it again",
            ) from None
        held = {
            "clusters": cluster,
            "users": user,
            "contexts": {**context, "cluster": name, "user": name},
        }
        return cls(name, mark, held)


def _entries(document: Any, section: str, part: str) -> dict[str, dict[str, Any]]:
    """By name; raises KeyError, TypeError or AttributeError when it is none of that."""
    return {each["name"]: dict(each[part]) for each in document[section]}
