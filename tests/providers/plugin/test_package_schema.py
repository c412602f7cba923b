"""Test that the package schema is valid by Pulumi's metaschema and describes every model."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema
import pytest

from gpuform import providers
from gpuform.providers.catalog import list_kinds, list_lookups, load_lifecycle_class
from gpuform.providers.platform import list_settings, platforms
from gpuform.providers.plugin.package_schema import TypeCollector, build_package_schema
from gpuform.schemas.models import InputModel
from gpuform.schemas.rules import Immutable, get_field_rules

SCHEMA = build_package_schema()
KINDS = list_kinds()
RESERVED = {"id", "urn", "__provider", "__internal"}


def load_metaschema() -> jsonschema.Draft202012Validator:
    schema_text = (Path(__file__).parent / "pulumi-package-metaschema.json").read_text(
        encoding="utf-8"
    )
    # JavaScript writes named groups as `(?<`, Python as `(?P<`.
    python_text = schema_text.replace("(?<", "(?P<")
    return jsonschema.Draft202012Validator(json.loads(python_text))


def iterate_values(value: Any, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each nested value with the path, the value itself first."""
    yield path, value
    items = value.items() if isinstance(value, dict) else ()
    for key, item in items:
        yield from iterate_values(item, *path, key)
    for number, item in enumerate(value if isinstance(value, list) else ()):
        yield from iterate_values(item, *path, str(number))


def test_the_file_is_current() -> None:
    file = Path(providers.__path__[0], "plugin", "schema.json")
    assert json.loads(file.read_text(encoding="utf-8")) == SCHEMA


def test_the_schema_is_valid_by_pulumis_metaschema() -> None:
    problems = [f"{e.json_path}: {e.message}" for e in load_metaschema().iter_errors(SCHEMA)]
    assert problems == []


@pytest.mark.parametrize(
    "corrupt",
    [
        lambda s: s.pop("name"),
        lambda s: s["resources"].update({"no token": {}}),
        lambda s: s["resources"]["gpuform:together:Cluster"]["properties"].update(a={"type": "a"}),
    ],
)
def test_the_metaschema_rejects_an_invalid_schema(corrupt: Any) -> None:
    corrupted = json.loads(json.dumps(SCHEMA))
    corrupt(corrupted)
    assert not load_metaschema().is_valid(corrupted)


def test_every_reference_leads_to_a_type_and_every_type_is_used() -> None:
    references = {
        value for path, value in iterate_values(SCHEMA) if path[-1:] == ("$ref",) and path[-2:-1]
    }
    own = {
        reference.removeprefix("#/types/") for reference in references if reference.startswith("#")
    }
    assert references - {f"#/types/{token}" for token in own} == {"pulumi.json#/Any"}
    answers = {
        token
        for token, spec in SCHEMA["types"].items()
        if spec in [function["outputs"] for function in SCHEMA["functions"].values()]
    }
    assert own <= set(SCHEMA["types"]) <= own | answers


def test_no_type_has_the_name_of_a_resource_or_of_its_arguments() -> None:
    taken = {f"{token}{ending}" for token in SCHEMA["resources"] for ending in ("", "Args")}
    assert not taken & set(SCHEMA["types"])


@pytest.mark.parametrize(("platform", "kind"), KINDS)
def test_a_resource_has_the_properties_of_its_models(platform: str, kind: str) -> None:
    spec, lifecycle = (
        SCHEMA["resources"][f"gpuform:{platform}:{kind}"],
        load_lifecycle_class(platform, kind),
    )
    assert list(spec["properties"]) == lifecycle.list_property_names()
    assert list(spec["inputProperties"]) == list(lifecycle.inputs.model_fields)
    assert not RESERVED & {*spec["properties"], *spec["inputProperties"]}
    fields = lifecycle.inputs.model_fields
    assert spec["requiredInputs"] == [name for name in fields if fields[name].is_required()]
    assert set(spec["required"]) <= set(spec["properties"])
    assert "ready" in spec["required"]
    secret = {
        name for name, property_spec in spec["properties"].items() if property_spec.get("secret")
    }
    assert secret == set(lifecycle.list_secret_names())
    replacing = {
        n
        for n, property_spec in spec["inputProperties"].items()
        if "willReplaceOnChanges" in property_spec
    }
    rules = get_field_rules(lifecycle.inputs)
    assert replacing == {n for n, r in rules.items() if r.immutable and r.is_compared}
    assert spec["aliases"] == [{"type": f"pulumi-python:dynamic/gpuform.{platform}:{kind}"}]


KEYS = [("default",), ("defaultInfo",), ("const",)]


def test_no_property_has_a_default() -> None:
    """Reject defaults: an SDK would declare them, and store environment keys in the state."""
    specs = {**SCHEMA["resources"], **SCHEMA["types"], "provider": SCHEMA["provider"]}
    default_paths = [p for p, _ in iterate_values(specs) if p[-1:] in KEYS]
    assert [path for path in default_paths if path[-2] != "properties"] == []


def test_every_property_has_a_description() -> None:
    for path, spec in iterate_values({**SCHEMA["resources"], "provider": SCHEMA["provider"]}):
        if len(path) > 1 and path[-2] in ("properties", "inputProperties"):
            assert spec["description"], path


def test_selected_properties_of_own_resources() -> None:
    cluster = SCHEMA["resources"]["gpuform:together:Cluster"]
    assert cluster["inputProperties"]["billing_type"] == {
        "$ref": "#/types/gpuform:together:ClusterBillingType",
        "description": "ON_DEMAND, RESERVED (with duration_days) or SCHEDULED_CAPACITY. (replaces)",
        "willReplaceOnChanges": True,
    }
    assert "willReplaceOnChanges" not in cluster["properties"]["billing_type"]
    values = SCHEMA["types"]["gpuform:together:ClusterBillingType"]["enum"]
    assert {"value": "RESERVED"} in values
    shared = SCHEMA["types"]["gpuform:together:ClusterSharedVolume"]
    assert shared["properties"]["size_tib"]["willReplaceOnChanges"] is True
    assert shared["required"] == ["volume_name", "size_tib", "region"]
    assert cluster["inputProperties"]["auto_scale"]["description"].endswith("Default: false.")
    nodes = SCHEMA["resources"]["gpuform:scp:NodePool"]["inputProperties"]["nodes"]
    assert nodes["additionalProperties"] == {"$ref": "#/types/gpuform:scp:NodePoolNode"}


class Part(InputModel):
    """A part of a sample."""

    size: int = 1
    state: Literal["on", "off"] | None = None


class Sample(InputModel):
    """A model with annotations of every kind, some of which no platform uses."""

    either: int | str | None = None
    part: Annotated[Part, Immutable] = Part()
    parts: dict[str, list[Part]] | None = None
    whatever: int | Any = None
    amount: int | float | None = None


def test_types_of_any_annotation() -> None:
    types = TypeCollector("lab", lambda model: model.__name__)
    rules = get_field_rules(Sample)
    property_specs = {
        n: types.build_property(f, n, rules[n]) for n, f in Sample.model_fields.items()
    }
    part = {"$ref": "#/types/gpuform:lab:Part"}
    specs = {
        name: {k: v for k, v in s.items() if k != "description"}
        for name, s in property_specs.items()
    }
    assert specs == {
        "either": {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        "part": {**part, "willReplaceOnChanges": True},
        "parts": {"type": "object", "additionalProperties": {"type": "array", "items": part}},
        "whatever": {"$ref": "pulumi.json#/Any"},
        "amount": {"type": "number"},
    }
    spec = types.specs["gpuform:lab:Part"]
    assert spec["required"] == []
    assert spec["properties"]["size"]["willReplaceOnChanges"] is True
    assert types.specs["gpuform:lab:PartState"]["enum"] == [{"value": "on"}, {"value": "off"}]
    with pytest.raises(ValueError, match="gpuform:lab:PartState is two types"):
        types.build_spec(Literal["up"], "PartState", rules["part"])
    other = TypeCollector("lab", lambda _model: "Same")
    other.build_spec(Part, "", rules["part"])
    with pytest.raises(ValueError, match="gpuform:lab:Same is Part and Sample"):
        other.build_spec(Sample, "", rules["part"])


def test_lookups_become_functions() -> None:
    names = {
        f"gpuform:{platform}:{name}" for platform in platforms() for name in list_lookups(platform)
    }
    assert set(SCHEMA["functions"]) <= names
    assert {"gpuform:scp:images", "gpuform:lens:get_overview"} <= set(SCHEMA["functions"])
    images = SCHEMA["functions"]["gpuform:scp:images"]
    assert images["inputs"]["required"] == ["region_id"]
    assert images["outputs"]["properties"]["items"] == {
        "type": "array",
        "items": {"$ref": "#/types/gpuform:scp:FoundImage"},
    }
    overview = SCHEMA["functions"]["gpuform:lens:get_overview"]["outputs"]
    assert "items" not in overview["properties"]


def test_every_setting_of_a_platform_is_one_of_the_provider() -> None:
    """Compare the settings with the constants `..._CONFIG` and `..._VARIABLE` of clients."""
    configured = {setting.config: setting for setting in list_settings()}
    config_keys = set()
    for module in pkgutil.walk_packages(providers.__path__, "gpuform.providers."):
        if module.name.split(".")[2] in platforms():
            constants = vars(importlib.import_module(module.name))
            for name, value in constants.items():
                if name.endswith("_CONFIG") and isinstance(value, str):
                    config_keys.add(value)
                    variable = constants.get(name.replace("_CONFIG", "_VARIABLE"))
                    assert variable in (None, configured[value].variable), value
    assert config_keys == set(configured)
    assert [setting.name for setting in list_settings()][:2] == ["togetherApiKey", "scpAccessKey"]


def test_keys_are_secret() -> None:
    secret = {n for n, s in SCHEMA["provider"]["inputProperties"].items() if s.get("secret")}
    assert {
        setting.name
        for setting in list_settings()
        if "Key" in setting.name or "oken" in setting.name
    } == secret
    assert SCHEMA["config"]["variables"]["togetherApiKey"]["defaultInfo"] == {
        "environment": ["TOGETHER_API_KEY"]
    }


def test_the_download_address_cannot_exist() -> None:
    assert SCHEMA["pluginDownloadURL"].split("/")[2].endswith(".invalid")
    assert SCHEMA["language"]["python"]["packageName"] != "gpuform"
