"""Define the base of the resource classes, as in a program's `Cluster("train", ...)`."""

from collections.abc import Iterator
from copy import copy
from typing import Any, ClassVar, Self

import pulumi
from pulumi.dynamic import dynamic

from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.platform import PROVIDER_KEY, Form
from gpuform.providers.plugin.locations import warn_about_import, warn_if_plugin_missing
from gpuform.providers.provider import get_chosen_form
from gpuform.schemas.values import convert_leaves


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
