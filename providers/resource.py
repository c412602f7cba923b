"""Define the base of the resource classes, explicit providers, and the form of resources."""

from collections.abc import Iterator
from copy import copy
from typing import Any, ClassVar, Self, TypedDict, Unpack

import pulumi
from pulumi.dynamic import dynamic

from gpuform.providers.errors import GpuformError
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import (
    FORM_CONFIG,
    PACKAGE,
    PROVIDER_KEY,
    Form,
    Setting,
    list_settings,
)
from gpuform.providers.plugin.locations import warn_about_import, warn_if_plugin_missing
from gpuform.schemas.checking import find_nearest_name
from gpuform.schemas.values import convert_leaves


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
        near = find_nearest_name(configured, Form)
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
            setting_names = ", ".join(settings)
            raise TypeError(
                f"a gpuform provider has no {', '.join(unknown)}: it has {setting_names}"
            )
        super().__init__(PACKAGE, resource_name, _build_inputs({**arguments}, settings), opts)


def _build_inputs(arguments: dict[str, Any], settings: dict[str, Setting]) -> dict[str, Any]:
    """Return the inputs of a provider, by the settings' names, with the secret ones marked."""
    inputs: dict[str, Any] = {}
    for name, value in arguments.items():
        setting = settings[name]
        secret = setting.secret and value is not None
        inputs[setting.name] = pulumi.Output.secret(value) if secret else value
    return inputs


class PlatformResource(pulumi.CustomResource):
    """A resource of one platform, in the form that the stack's configuration chooses.

    Every argument is an input of the platform, in snake_case. A resource as an argument stands for
    its id, and a secret stays secret. `check` refuses unknown names and suggests the nearest one.
    """

    _lifecycle: ClassVar[type[Lifecycle[Any, Any]]]
    _resource_type_name: ClassVar[str]
    """The type's name, as the SDK names the types of dynamic resources."""

    def __init_subclass__(cls, *, module: str, name: str) -> None:
        super().__init_subclass__()
        cls._resource_type_name = f"dynamic/{module}:{name}"

    def __init__(
        self, resource_name: str, opts: pulumi.ResourceOptions | None = None, **arguments: Any
    ) -> None:
        lifecycle, form = self._lifecycle, get_chosen_form()
        # A property without a value makes the attribute exist, with the provider's answer later.
        properties = dict.fromkeys(lifecycle.list_property_names())
        secret = lifecycle.list_secret_names()
        given_properties = {
            name: convert_leaves(
                value, lambda leaf: leaf.id if isinstance(leaf, PlatformResource) else leaf
            )
            for name, value in arguments.items()
        }
        for name in secret:
            if given_properties.get(name) is not None:
                given_properties[name] = pulumi.Output.secret(given_properties[name])
        if form is Form.DYNAMIC:
            given_properties[PROVIDER_KEY] = dynamic.serialize_provider(lifecycle())
            if opts is not None and opts.import_:
                warn_about_import(resource_name)
        else:
            warn_if_plugin_missing()
        other_type = form.other.build_type(lifecycle.platform, lifecycle.kind)
        aliases = [pulumi.Alias(type_=other_type), *_build_aliases(other_type, opts)]
        defaults = pulumi.ResourceOptions(additional_secret_outputs=secret, aliases=aliases)
        super().__init__(
            form.build_type(lifecycle.platform, lifecycle.kind),
            resource_name,
            {**properties, **given_properties},
            pulumi.ResourceOptions.merge(defaults, opts),
        )

    @classmethod
    def property_names(cls) -> tuple[str, ...]:
        """Return the names of inputs and outputs, without the id."""
        return tuple(cls._lifecycle.list_property_names())

    @classmethod
    def get(
        cls,
        resource_name: str,
        id: pulumi.Input[str],  # noqa: A002 - Pulumi's name for it
        opts: pulumi.ResourceOptions | None = None,
    ) -> Self:
        """Return an existing object that this program does not manage, by its id."""
        options = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(id=id))
        resource = cls.__new__(cls)
        PlatformResource.__init__(resource, resource_name, options)
        return resource


def _build_aliases(other_type: str, opts: pulumi.ResourceOptions | None) -> Iterator[pulumi.Alias]:
    """Yield a copy with the resource type `other_type` for each declared alias without a type.

    `other_type` is the type of the other form: a resource may be renamed while the stack changes
    between dynamic form and plugin.
    """
    for alias in (opts.aliases if opts else None) or ():
        # The SDK says `...` for what is not given.
        if isinstance(alias, pulumi.Alias) and not isinstance(alias.type_, str):
            other = copy(alias)
            other.type_ = other_type
            yield other
