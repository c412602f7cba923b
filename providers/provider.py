"""Declare an explicit provider (another account or address), and read the form of a stack."""

from typing import Any, TypedDict, Unpack

import pulumi

from gpuform.providers.errors import GpuformError
from gpuform.providers.platform import FORM_CONFIG, PACKAGE, Form, Setting, list_settings
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


Text = pulumi.Input[str] | None


class ProviderArguments(TypedDict, total=False):
    """The settings of gpuform's own platforms in Python's spelling; others' are accepted, too."""

    together_api_key: Text
    scp_access_key: Text
    scp_secret_key: Text
    scp_auth_token: Text
    scp_account_id: Text
    scp_default_region: Text
    scp_environment: Text
    scp_api_version: Text
    tensorone_api_key: Text
    aios_registry_url: Text
    aios_parser_url: Text
    lens_url: Text
    lens_token: Text


class NoExplicitProvider(GpuformError, pulumi.RunError):
    """The stack's form has no explicit providers; shown without a traceback."""

    help_page = "guides/plugin"


class Provider(pulumi.ProviderResource):
    """Settings for the resources that name the provider in `opts.provider`: the plugin form only.

    Arguments precede the environment, which supplies the other settings. Raises NoExplicitProvider
    in the dynamic form, whose resources would all use the stack's own settings, and TypeError for
    an unknown argument.
    """

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[ProviderArguments],
    ) -> None:
        if get_chosen_form() is Form.DYNAMIC:
            raise NoExplicitProvider(
                f"provider '{resource_name}': dynamic resources do not support explicit "
                "providers, and would all use the account of the stack",
                hint=f"gpuform config set {FORM_CONFIG} {Form.PLUGIN}, or declare the resources "
                "of the other account in a separate stack",
            )
        settings = {setting.argument: setting for setting in list_settings()}
        unknown = sorted(arguments.keys() - settings.keys())
        if unknown:
            known = ", ".join(settings)
            raise TypeError(f"a gpuform provider has no {', '.join(unknown)}: it has {known}")
        super().__init__(PACKAGE, resource_name, _build_inputs({**arguments}, settings), opts)


def _build_inputs(arguments: dict[str, Any], settings: dict[str, Setting]) -> dict[str, Any]:
    """Return the inputs of a provider, by the settings' names, with the secret ones marked."""
    inputs: dict[str, Any] = {}
    for name, value in arguments.items():
        setting = settings[name]
        secret = setting.secret and value is not None
        inputs[setting.name] = pulumi.Output.secret(value) if secret else value
    return inputs
