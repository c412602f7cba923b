"""Test that every declarable field has a description, and examples that are valid."""

from collections.abc import Iterator
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from gpuform.providers.catalog import list_kinds, load_lifecycle_class
from gpuform.providers.platform import platforms
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.stacks_plan import StacksInputs
from gpuform.schemas.topology import EntryInputs, TopologyInputs, get_reference_fields


def list_models() -> Iterator[type[BaseModel]]:
    """Return every model of topology files and stacks.yaml with nested models, outermost first."""
    remaining_models: list[type[BaseModel]] = [TopologyInputs, EntryInputs, StacksInputs]
    remaining_models += [load_lifecycle_class(name, kind).inputs for name, kind in list_kinds()]
    visited_models = set()
    while remaining_models:
        model = remaining_models.pop(0)
        if model not in visited_models:
            visited_models.add(model)
            yield model
            remaining_models += [
                rules.nested for rules in get_field_rules(model).values() if rules.nested
            ]


FIELDS = [
    pytest.param(field, id=f"{model.__module__.removeprefix('gpuform.')}.{model.__name__}.{name}")
    for model in list_models()
    for name, field in model.model_fields.items()
]


def is_expression(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("{{")


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_is_described(field: FieldInfo) -> None:
    assert field.description
    assert field.description.endswith(".")


@pytest.mark.parametrize("field", FIELDS)
def test_the_examples_of_a_field_are_valid(field: FieldInfo) -> None:
    assert field.examples
    alone = TypeAdapter(Annotated[field.annotation, field])
    for example in field.examples:
        if not is_expression(example):
            alone.validate_python(example, strict=True)


def test_nested_models_are_included() -> None:
    names = {model.__name__ for model in list_models()}
    assert {"TimeoutsInputs", "OidcConfigInputs", "NodeInputs", "RateBoundsInputs"} <= names
    assert {"StackEntryInputs", "GateInputs"} <= names


@pytest.mark.parametrize(
    ("platform", "kind"),
    [each for each in list_kinds() if get_reference_fields(load_lifecycle_class(*each).inputs)],
)
def test_a_reference_is_to_a_kind_of_the_same_platform(platform: str, kind: str) -> None:
    model = load_lifecycle_class(platform, kind).inputs
    for short, name in get_reference_fields(model).items():
        assert name == f"{short}_id"
        assert get_field_rules(model)[name].reference_kind in platforms()[platform].lifecycles
        assert short not in {*model.model_fields, *EntryInputs.model_fields}


def test_exactly_these_fields_hold_ids_of_resources() -> None:
    reference_fields = {
        (platform, kind, name)
        for platform, kind in list_kinds()
        for name in get_reference_fields(load_lifecycle_class(platform, kind).inputs).values()
    }
    assert reference_fields == {
        ("together", "Cluster", "volume_id"),
        ("together", "SharedVolume", "instance_cluster_id"),
        ("together", "VolumeClaim", "cluster_id"),
        ("together", "Certification", "cluster_id"),
        ("aios", "GpuNode", "cluster_id"),
    }
