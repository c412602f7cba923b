"""Read from the stack's configuration which form its resources have."""

import pulumi

from gpuform.providers.errors import GpuformError
from gpuform.providers.forms import FORM_CONFIG, Form
from gpuform.schemas.checking import find_nearest_name


class UnknownForm(GpuformError, pulumi.RunError):
    """The stack's configuration names an unknown form; shown without a traceback."""

    help_page = "guides/plugin"


def get_chosen_form() -> Form:
    """Return the form (dynamic or plugin) in the running program's configuration.

    Raises UnknownForm for another text there.
    """
    return parse_form(pulumi.runtime.get_config(FORM_CONFIG), pulumi.get_stack())


def parse_form(configured: str | None, stack: str) -> Form:
    """Return the form (dynamic or plugin) in a stack's configuration; the dynamic one for None.

    Raises UnknownForm for another text.
    """
    if configured is None:
        return Form.DYNAMIC
    try:
        return Form(configured)
    except ValueError:
        near = find_nearest_name(configured, tuple(Form))
        raise UnknownForm(
            f"{FORM_CONFIG} is {configured!r} in the configuration of stack {stack}: "
            + (f"did you mean {near}?" if near else f"use {' or '.join(Form)}"),
            hint=f"gpuform config set {FORM_CONFIG} {near or Form.DYNAMIC}, or change the line in "
            f"Pulumi.{stack}.yaml (or under config in Pulumi.yaml)",
        ) from None
