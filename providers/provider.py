"""An explicit provider: another account, or another platform's address, for some resources."""

from typing import Any, Final

import pulumi

from gpuform.providers.errors import GpuformError
from gpuform.providers.forms import FORM_CONFIG, PACKAGE, Form, chosen_form
from gpuform.providers.plugin.configuration import SETTINGS

_ARGUMENTS: Final = {each.argument: each for each in SETTINGS}


class NoExplicitProvider(GpuformError, pulumi.RunError):
    """The stack's form has no explicit providers; shown without a traceback."""


class Provider(pulumi.ProviderResource):
    """Settings for the resources that name it in `opts.provider`: the plugin form only.

    Arguments are the plugin's settings in snake_case, such as `together_api_key`; what is not given
    is taken from the environment, as anywhere. Raises NoExplicitProvider in the dynamic form, whose
    resources would all be made with the stack's own settings, and TypeError for an argument that is
    not known.
    """

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: pulumi.Input[str] | None,
    ) -> None:
        if chosen_form() is Form.DYNAMIC:
            raise NoExplicitProvider(
                f"provider '{resource_name}': dynamic resources know no explicit providers, and "
                "would all use the stack's own account",
                hint=f"gpuform config set {FORM_CONFIG} {Form.PLUGIN}, or declare what belongs to "
                "the other account in a stack of its own",
            )
        unknown = sorted(arguments.keys() - _ARGUMENTS.keys())
        if unknown:
            known = ", ".join(_ARGUMENTS)
            raise TypeError(f"a gpuform provider has no {', '.join(unknown)}: it has {known}")
        super().__init__(PACKAGE, resource_name, _inputs(arguments), opts)


def _inputs(arguments: dict[str, pulumi.Input[str] | None]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, value in arguments.items():
        setting = _ARGUMENTS[name]
        secret = setting.secret and value is not None
        given[setting.name] = pulumi.Output.secret(value) if secret else value
    return given
