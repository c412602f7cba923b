"""How a program's resources reach their lifecycles: a setting of the stack says."""

from enum import StrEnum
from typing import Final

import pulumi

from gpuform.providers.errors import GpuformError
from gpuform.schemas.reasons import nearest

PACKAGE: Final = "gpuform"
"""The plugin's package: of its resources' types, its providers and its configuration."""
FORM_CONFIG: Final = "gpuform:form"


class UnknownForm(GpuformError, pulumi.RunError):
    """The stack's configuration names a form that there is not; shown without a traceback."""

    page = "guides/plugin"


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


def chosen_form() -> Form:
    """What the running program's configuration says. Raises UnknownForm."""
    return form_of(pulumi.runtime.get_config(FORM_CONFIG), pulumi.get_stack())


def form_of(said: str | None, stack: str) -> Form:
    """What a stack's configuration says; dynamic where it says nothing. Raises UnknownForm."""
    if said is None:
        return Form.DYNAMIC
    try:
        return Form(said)
    except ValueError:
        near = nearest(said, tuple(Form))
        raise UnknownForm(
            f"{FORM_CONFIG} is {said!r} in the configuration of stack {stack}: "
            + (f"did you mean {near}?" if near else f"use {' or '.join(Form)}"),
            hint=f"gpuform config set {FORM_CONFIG} {near or Form.DYNAMIC}, or change the line in "
            f"Pulumi.{stack}.yaml (or under config in Pulumi.yaml)",
        ) from None
