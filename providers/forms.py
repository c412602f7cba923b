"""How a program's resources reach their lifecycles."""

from enum import StrEnum
from typing import Final

PACKAGE: Final = "gpuform"
"""The plugin's package: of its resources' types, its providers and its configuration."""
FORM_CONFIG: Final = "gpuform:form"
PROVIDER_KEY: Final = "__provider"
"""The property by which a dynamic resource brings its provider."""


class Form(StrEnum):
    """The two have the same ids, properties and state; a stack may move from one to the other."""

    DYNAMIC = "dynamic"
    """By Pulumi's dynamic providers: nothing to install, in Python only."""
    PLUGIN = "plugin"
    """By the provider plugin, as programs in other languages do."""

    @property
    def other(self) -> "Form":
        """What the stack may have been run with before."""
        return Form.PLUGIN if self is Form.DYNAMIC else Form.DYNAMIC

    def type_of(self, platform: str, kind: str) -> str:
        """The type of a resource; state files hold it for ever."""
        if self is Form.DYNAMIC:
            return f"pulumi-python:dynamic/{PACKAGE}.{platform}:{kind}"
        return f"{PACKAGE}:{platform}:{kind}"
