"""Define the two forms in which a program's resources reach their lifecycles."""

from enum import StrEnum
from typing import Final

PACKAGE: Final = "gpuform"
"""The name of the plugin's package in resource types, providers and configuration."""
FORM_CONFIG: Final = "gpuform:form"
PROVIDER_KEY: Final = "__provider"
"""The property with which a dynamic resource brings its provider."""


class Form(StrEnum):
    """The form of resources.

    Both forms have the same ids, properties and state; a stack may change its form.
    """

    DYNAMIC = "dynamic"
    """Pulumi's dynamic providers: nothing to install, in Python only."""
    PLUGIN = "plugin"
    """The provider plugin, as for programs in other languages."""

    @property
    def other(self) -> "Form":
        """The plugin form for the dynamic one, and the dynamic form for the plugin."""
        return Form.PLUGIN if self is Form.DYNAMIC else Form.DYNAMIC

    def build_type(self, platform: str, kind: str) -> str:
        """Return Pulumi's type token of a kind in this form, which state files keep for ever."""
        if self is Form.DYNAMIC:
            return f"pulumi-python:dynamic/{PACKAGE}.{platform}:{kind}"
        return f"{PACKAGE}:{platform}:{kind}"
