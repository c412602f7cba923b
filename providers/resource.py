"""The Pulumi resource class of a lifecycle: what a program writes `Cluster("train", ...)` with."""

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, ClassVar, Self

import pulumi
from pulumi.dynamic import dynamic

from gpuform.providers.chosen_form import chosen_form
from gpuform.providers.forms import PROVIDER_KEY, Form
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.plugin.program_warnings import warn_about_import, warn_if_missing


class PlatformResource(pulumi.CustomResource):
    """A resource of one platform, in the form that the stack's configuration chooses.

    Every argument is an input of the platform, in snake_case; one that is another gpuform resource
    means its id, and one that holds a secret is kept as such. Names that the platform does not have
    are refused by check, with the nearest one.
    """

    _lifecycle: ClassVar[type[Lifecycle[Any, Any]]]
    _resource_type_name: ClassVar[str]
    """As the SDK names the type of a dynamic resource."""

    def __init_subclass__(cls, *, module: str, name: str) -> None:
        super().__init_subclass__()
        cls._resource_type_name = f"dynamic/{module}:{name}"

    def __init__(
        self, resource_name: str, opts: pulumi.ResourceOptions | None = None, **arguments: Any
    ) -> None:
        lifecycle, form = self._lifecycle, chosen_form()
        # A property without a value makes the attribute exist, with the provider's answer later.
        properties = dict.fromkeys(lifecycle.list_property_names())
        secret = lifecycle.list_secret_names()
        given = {name: _meant(value) for name, value in arguments.items()}
        for name in secret:
            if given.get(name) is not None:
                given[name] = pulumi.Output.secret(given[name])
        if form is Form.DYNAMIC:
            given[PROVIDER_KEY] = dynamic.serialize_provider(lifecycle())
            if opts is not None and opts.import_:
                warn_about_import(resource_name)
        else:
            warn_if_missing()
        before = form.other.type_of(lifecycle.platform, lifecycle.kind)
        aliases = [pulumi.Alias(type_=before), *_of_type(before, opts)]
        defaults = pulumi.ResourceOptions(additional_secret_outputs=secret, aliases=aliases)
        super().__init__(
            form.type_of(lifecycle.platform, lifecycle.kind),
            resource_name,
            {**properties, **given},
            pulumi.ResourceOptions.merge(defaults, opts),
        )

    @classmethod
    def property_names(cls) -> tuple[str, ...]:
        """What it has beside its id: inputs and outputs."""
        return tuple(cls._lifecycle.list_property_names())

    @classmethod
    def get(
        cls,
        resource_name: str,
        id: pulumi.Input[str],  # noqa: A002 - Pulumi's name for it
        opts: pulumi.ResourceOptions | None = None,
    ) -> Self:
        """An object that exists and that this program does not manage, by its id."""
        found = pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(id=id))
        resource = cls.__new__(cls)
        PlatformResource.__init__(resource, resource_name, found)
        return resource


def _of_type(before: str, opts: pulumi.ResourceOptions | None) -> Iterator[pulumi.Alias]:
    """The program's own aliases in the other form: a resource may be renamed while it moves."""
    for alias in (opts.aliases if opts else None) or ():
        # The SDK says `...` for what is not given.
        if isinstance(alias, pulumi.Alias) and not isinstance(alias.type_, str):
            other = copy(alias)
            other.type_ = before
            yield other


def _meant(value: Any) -> Any:
    """The value of an argument: the id of a resource, at any depth of plain lists and objects."""
    if isinstance(value, PlatformResource):
        return value.id
    if isinstance(value, Mapping):
        return {key: _meant(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_meant(item) for item in value]
    return value
