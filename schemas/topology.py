"""Define the keys of a topology file beside the platforms' inputs: sections, options, config.

The topology reader and the generator of the file's JSON Schema use these models. The sections hold
entries by name, and an entry's `platform` selects the model of its properties. Every value may be
an expression, `{{ ... }}`.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, create_model

from gpuform.schemas.models import (
    InputModel,
    Problem,
    optional_field,
    require_full_match,
    require_pattern,
)
from gpuform.schemas.rules import get_field_rules

SECTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "clusters": "Cluster",
        "node_pools": "NodePool",
        "gpu_nodes": "GpuNode",
        "fabrics": "Fabric",
        "shared_volumes": "SharedVolume",
        "volume_claims": "VolumeClaim",
        "certifications": "Certification",
        "health_gates": "HealthGate",
    }
)
"""Kind of the entries of each section."""

NAME_PATTERN: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
"""Pattern of names of entries, configuration values and outputs, and of keys of `for_each`."""


@cache
def get_reference_fields(model: type[InputModel]) -> Mapping[str, str]:
    """Return the fields of ``model`` for ids of other resources, by the field names without `_id`.

    An entry of a topology may name the other resource under this short name instead.
    """
    # such as `cluster_id`, which an entry may give as `cluster`
    fields = (name for name, rules in get_field_rules(model).items() if rules.reference_kind)
    return MappingProxyType({name.removesuffix("_id"): name for name in fields})


Duration = Annotated[
    str,
    require_full_match(
        r"([0-9]+(\.[0-9]+)?(ms|s|m|h))+", "{text!r} is not a duration: write 90s, 45m or 1h30m"
    ),
]


class TimeoutsInputs(InputModel):
    """How long an operation may take."""

    create: Duration | None = optional_field("The longest time for a create.", examples=["45m"])
    update: Duration | None = optional_field("The longest time for an update.", examples=["30m"])
    delete: Duration | None = optional_field("The longest time for a delete.", examples=["1h30m"])


class AliasInputs(InputModel):
    """A former name, type or parent of a resource; omitted fields are as they are now."""

    name: str | None = optional_field("Earlier name of the resource.", examples=["train-old"])
    type: str | None = optional_field(
        "Earlier type token of the resource.",
        examples=["pulumi-python:dynamic/gpuform.together:Cluster"],
    )
    parent: str | None = optional_field(
        "Earlier parent of the resource: a resource, or a URN.", examples=["{{ clusters.head }}"]
    )


class _Options(InputModel):
    # Names of Pulumi's SDKs and of Terraform.
    retired_names: ClassVar[Mapping[str, str]] = {
        "custom_timeouts": "timeouts",
        "customTimeouts": "timeouts",
        "dependsOn": "depends_on",
        "ignoreChanges": "ignore_changes",
        "replaceOnChanges": "replace_on_changes",
        "retainOnDelete": "retain_on_delete",
        "deleteBeforeReplace": "delete_before_replace",
        "deletedWith": "deleted_with",
        "additionalSecretOutputs": "additional_secret_outputs",
        "prevent_destroy": "protect",
        "import_": "import",
    }

    protect: bool | None = optional_field(
        "Whether a delete or replacement is refused.", examples=[True]
    )
    retain_on_delete: bool | None = optional_field(
        "Whether the object stays on the platform when the resource is removed.", examples=[True]
    )
    delete_before_replace: bool | None = optional_field(
        "Whether a replacement deletes the old object first, which is the default "
        "because GPUs are scarce.",
        examples=[True],
    )
    depends_on: list[str] | None = optional_field(
        "Resources that are created before this one and deleted after it.",
        examples=[["{{ health_gates.healthy }}"]],
    )
    ignore_changes: list[str] | None = optional_field(
        "Property paths whose changes are not applied.", examples=[["num_gpus"]]
    )
    replace_on_changes: list[str] | None = optional_field(
        "Property paths whose changes replace the resource.", examples=[["cluster_config"]]
    )
    timeouts: TimeoutsInputs | None = optional_field(
        "How long create, update and delete may take.", examples=[{"create": "45m"}]
    )
    aliases: list[AliasInputs] | None = optional_field(
        "Former names of the resource, so that a renamed resource is not replaced.",
        examples=[[{"name": "train-old"}]],
    )
    parent: str | None = optional_field(
        "The parent of this resource, from which options such as protect are inherited.",
        examples=["{{ clusters.head }}"],
    )
    deleted_with: str | None = optional_field(
        "The resource whose deletion deletes this one, too, without a request.",
        examples=["{{ clusters.train }}"],
    )
    replace_with: list[str] | None = optional_field(
        "Resources whose replacement replaces this one, too.", examples=[["{{ clusters.train }}"]]
    )
    replacement_trigger: Any = optional_field(
        "Any value; a change of the value replaces the resource.", examples=["{{ config.day }}"]
    )
    additional_secret_outputs: list[str] | None = optional_field(
        "Outputs to keep secret.", examples=[["status"]]
    )
    id: str | None = optional_field(
        "Id of an existing object to read: gpuform never changes or deletes it.",
        examples=["cluster-4f1e"],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem if both `id` and `import` are declared."""
        if "id" in values and "import" in values:
            yield Problem(
                "import", "conflicts with id: import manages the object, and id only reads it"
            )


# A class body cannot have a field of this name: it is a word of Python.
_IMPORT: Any = {
    "import": (
        str | None,
        Field(
            default=None,
            description="Id of an existing object to manage from now on.",
            examples=["cluster-4f1e"],
        ),
    )
}
OptionsInputs: type[InputModel] = create_model(
    "OptionsInputs",
    __base__=_Options,
    __doc__="Pulumi's resource options, under their own names.",
    **_IMPORT,
)

ConfigType = Literal["string", "integer", "number", "boolean", "array", "object"]


class ConfigInputs(InputModel):
    """A value that each stack sets in its Pulumi.<stack>.yaml: `gpuform config set NAME VALUE`."""

    type: ConfigType | None = optional_field(
        "Type of the value; string if not declared.", examples=["integer"]
    )
    default: Any = optional_field(
        "The value for stacks without their own value; without a default every stack must set one.",
        examples=[16],
    )
    emulator_default: Any = optional_field(
        "The value for stacks without their own value, only on the emulator: stacks "
        "on real platforms must set one.",
        examples=["Only4Tests!"],
    )
    description: str | None = optional_field(
        "Purpose of the value.", examples=["GPUs to train on."]
    )
    secret: bool | None = optional_field(
        "Whether the value is secret, and every value computed from it.", examples=[True]
    )
    enum: list[Any] | None = optional_field(
        "The values that are allowed.", examples=[["small", "large"]]
    )
    minimum: float | None = optional_field("The lowest allowed number.", examples=[8])
    maximum: float | None = optional_field("The highest allowed number.", examples=[512])
    multiple_of: float | None = optional_field(
        "A number that the value is a multiple of.", gt=0, examples=[8]
    )
    min_length: int | None = optional_field(
        "The lowest allowed number of characters or items.", ge=0, examples=[1]
    )
    max_length: int | None = optional_field(
        "The highest allowed number of characters or items.", ge=0, examples=[15]
    )
    pattern: Annotated[str, AfterValidator(require_pattern)] | None = optional_field(
        "A regular expression that must match the complete text; without look-around "
        "and backreferences.",
        examples=["[a-z][a-z0-9-]*"],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem if both `default` and `emulator_default` are declared."""
        if "default" in values and "emulator_default" in values:
            yield Problem(
                "emulator_default",
                "conflicts with default, which applies everywhere: keep one of the two",
            )


class EntryInputs(InputModel):
    """The keys of an entry of any section beside the properties of its kind and platform."""

    platform: str = Field(description="The platform that has the resource.", examples=["together"])
    for_each: Any = optional_field(
        "A map, or a list of texts and integers: one instance for each, called "
        "NAME-KEY, in which `each.key` and `each.value` are defined. A removed key removes "
        "its instance, whatever its position; use a map for resources that cost money.",
        examples=[{"a": "us-central-8", "b": "us-central-8"}, "{{ range(4) }}"],
    )
    when: Any = optional_field(
        "Whether the resource is declared at all; true by default.",
        examples=["{{ config.gpus > 0 }}"],
    )
    options: OptionsInputs | None = optional_field(
        "Pulumi's resource options.", examples=[{"protect": True}]
    )


class _Module(InputModel):
    file: str = Field(
        description="The module: a topology file with `inputs` and `outputs`, relative to this "
        "file.",
        examples=["pool.yaml"],
    )
    name: str = Field(
        description="Prefix of the names of the module's resources: NAME-ENTRY, or "
        "NAME-KEY-ENTRY with `for_each`. Another prefix means other resources.",
        examples=["train"],
    )
    for_each: Any = optional_field(
        "As in an entry: one instance of the module for each item, called NAME-KEY.",
        examples=[{"a": "us-central-8", "b": "us-central-4"}],
    )
    when: Any = optional_field(
        "As in an entry: whether the module is included at all.", examples=["{{ config.gpus > 0 }}"]
    )


# As `import` above: a word of Python.
_WITH: Any = {
    "with": (
        dict[str, Any] | None,
        Field(
            default=None,
            description="Values of the module's inputs, which may be expressions. Null means not "
            "given.",
            examples=[{"gpus": 16, "region": "{{ each.value }}"}],
        ),
    )
}
ModuleInputs: type[InputModel] = create_model(
    "ModuleInputs",
    __base__=_Module,
    __doc__="A module file in `include`, with the values of its inputs.",
    **_WITH,
)


class TopologyInputs(InputModel):
    """A topology file without its sections."""

    include: list[Any] | None = optional_field(
        "Other topology files, relative to this one. A path includes the contents of the file "
        "here. An object includes a module, under a name and with values for its inputs.",
        examples=[["volumes.yaml"], [{"file": "pool.yaml", "name": "train", "with": {"gpus": 16}}]],
    )
    inputs: dict[str, ConfigInputs] | None = optional_field(
        "Of a module file: its input values, `{{ inputs.NAME }}`.",
        examples=[{"gpus": {"type": "integer", "multiple_of": 8}}],
    )
    config: dict[str, ConfigInputs] | None = optional_field(
        "The stack's configuration: `{{ config.NAME }}`.",
        examples=[{"gpus": {"type": "integer", "default": 16}}],
    )
    stack_references: dict[str, str] | None = optional_field(
        "Other stacks by a name of your choice: `{{ stack_references.NAME.OUTPUT }}`.",
        examples=[{"network": "organization/network/prod"}],
    )
    defaults: dict[str, Any] | None = optional_field(
        "Default properties and options of entries, by section and platform; null "
        "in an entry removes one.",
        examples=[{"clusters": {"together": {"billing_type": "ON_DEMAND"}}}],
    )
    outputs: dict[str, Any] | None = optional_field(
        "Outputs of the stack: `gpuform stack output`. Of a module file: the "
        "values of `{{ modules.NAME.OUTPUT }}` where it is included.",
        examples=[{"kubeconfig": "{{ clusters.train.kube_config }}"}],
    )
