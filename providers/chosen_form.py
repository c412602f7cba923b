"""The form of a stack's resources: a setting of the stack says."""

import pulumi

from gpuform.providers.errors import GpuformError
from gpuform.providers.forms import FORM_CONFIG, Form
from gpuform.schemas.checking import find_nearest_name


class UnknownForm(GpuformError, pulumi.RunError):
    """The stack's configuration names a form that there is not; shown without a traceback."""

    help_page = "guides/plugin"


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
        near = find_nearest_name(said, tuple(Form))
        raise UnknownForm(
            f"{FORM_CONFIG} is {said!r} in the configuration of stack {stack}: "
            + (f"did you mean {near}?" if near else f"use {' or '.join(Form)}"),
            hint=f"gpuform config set {FORM_CONFIG} {near or Form.DYNAMIC}, or change the line in "
            f"Pulumi.{stack}.yaml (or under config in Pulumi.yaml)",
        ) from None
