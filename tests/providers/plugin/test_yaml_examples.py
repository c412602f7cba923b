"""Test that every Pulumi YAML example is valid by the schema and equals its topology."""

import contextlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.topologies.pulumi_yaml import (
    EvaluatedProgram,
    ProgramCheck,
    find_references,
    parse_access,
)

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.context import read_run_context
from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.operations import Settings
from gpuform.providers.plugin import settings
from gpuform.providers.plugin.package_schema import build_package_schema
from gpuform.stacks.engine.language_host import Program, record
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.resource_rules import find_kind
from gpuform.stacks.review.value_text import to_display_value

EXAMPLES = sorted(
    path.parent for path in (Path(__file__).parents[3] / "examples").glob("[0-9]*/pulumi-yaml")
)
SCHEMA = build_package_schema()
each_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)


@each_example
def test_an_example_is_valid_by_the_schema(example: Path) -> None:
    checked = ProgramCheck.check_file(example / "pulumi-yaml" / "Pulumi.yaml", SCHEMA)
    assert checked.problems == []
    project = yaml.safe_load((example / "Pulumi.yaml").read_text())
    settings_ = {key: checked.program[key] for key in project}
    assert settings_ == {**project, "runtime": "yaml"}


@pytest.fixture(autouse=True)
def platforms(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with serve(seed="examples") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        yield


def build_sample(spec: dict[str, Any], path: str) -> Any:
    """Return a value of the type, which for strings is the property's path."""
    if "$ref" in spec:
        spec = SCHEMA["types"].get(spec["$ref"].removeprefix("#/types/"), {})
    if "properties" in spec:
        return {
            key: build_sample(property_spec, f"{path}.{key}")
            for key, property_spec in spec["properties"].items()
        }
    if spec.get("type") == "array":
        return [build_sample(spec["items"], f"{path}[0]")]
    if "additionalProperties" in spec:
        # These are the keys that the examples read from maps.
        inner = spec["additionalProperties"]
        return {key: build_sample(inner, f"{path}.{key}") for key in ("8888", "edge")}
    return {"integer": 7, "number": 0.5, "boolean": True}.get(spec.get("type", ""), path)


def build_outputs(type_: str, name: str, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the outputs of a resource in the form of a platform's answer."""
    properties = SCHEMA["resources"][type_]["properties"]
    values = {
        key: inputs.get(key) or build_sample(properties[key], f"{name}.{key}") for key in properties
    }
    return {**values, "id": f"id of {name}"}


def get_token(type_: str) -> str:
    platform, kind = find_kind(type_) or ("", "")
    return f"gpuform:{platform}:{kind}"


def answer_registration(registration: Registration | Read) -> tuple[str, dict[str, Any]]:
    inputs = {key: value for key, value in registration.inputs.items() if key != "__provider"}
    values = build_outputs(get_token(registration.type), registration.name, inputs)
    return values.pop("id"), values


def invoke(token: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return dict(settings.call_function(token, arguments, Settings()))


def mask_secrets(values: Any, secret: Collection[str] = ()) -> Any:
    """Return values as text, with values named in `secret` completely masked."""
    masked = {key: "[secret]" if key in secret else value for key, value in values.items()}
    return json.loads(json.dumps(to_display_value(masked)))


@each_example
def test_an_example_declares_the_resources_of_its_topology(example: Path) -> None:
    program = Program("demo", "dev", example, example, {}, [], 16, read_run_context())
    with contextlib.chdir(example):
        recording = record(program, answer_registration, program.config)
    topology = {
        declaration.name: declaration
        for declaration in recording.declared
        if declaration.type != STACK_TYPE
    }
    document = yaml.safe_load((example / "pulumi-yaml" / "Pulumi.yaml").read_text())
    evaluated = EvaluatedProgram(document, build_outputs, invoke)
    resources = document["resources"]
    assert set(resources) == set(topology)
    for name, resource in resources.items():
        registration = topology[name]
        assert resource["type"] == get_token(registration.type)
        secret = load_lifecycle_class(*find_kind(registration.type) or ("", "")).list_secret_names()
        declared = {
            k: v for k, v in registration.inputs.items() if k != "__provider" and v is not None
        }
        assert mask_secrets(evaluated.evaluate_inputs(name), secret) == mask_secrets(
            declared, secret
        )
        used = {
            *find_references(resource["properties"]),
            *find_references(resource.get("options", {})),
        }
        needed = (
            [registration.deleted_with, *registration.dependencies]
            if isinstance(registration, Registration)
            else []
        )
        assert used & set(resources) == {urn.rpartition("::")[2] for urn in needed if urn}
        with_ = resource.get("options", {}).get("deletedWith", "")
        assert set(find_references(with_)) == {registration.deleted_with.rpartition("::")[2]} - {""}
    declared = mask_secrets(recording.outputs)
    evaluated_outputs = {
        key: evaluated.evaluate(value) for key, value in document["outputs"].items()
    }
    assert set(evaluated_outputs) == set(declared)
    for key, value in evaluated_outputs.items():
        assert declared[key] in ("[secret]", mask_secrets({key: value})[key])


WRONG = """
name: demo
runtime: yaml
config:
  gpus: {type: integer, default: many}
variables:
  images: {"fn::invoke": {function: "gpuform:scp:image", arguments: {}}}
  pools: {"fn::invoke": {function: "gpuform:scp:images", arguments: {zone: a}, return: all}}
  joined: {"fn::sum": [1, 2]}
resources:
  data:
    type: gpuform:together:SharedVolume
    properties: {volume_name: 5, size_tib: "${train.status}", sise: 1}
    options: {dependsOn: ["${nothing}"], deletedWith: "${none}", depends: []}
  train:
    type: gpuform:together:Clusters
  gpus: {type: "gpuform:lens:HealthGate", properties: {condition: {healthy_node: {}}}}
  bench:
    type: gpuform:together:Cluster
    properties:
      cluster_name: "a-${data.id}-${data.ready}"
      region: ${data.regions}
      gpu_type: ${data.region[0}
      num_gpus: true
      billing_type: FREE
outputs:
  there: ${images[0].id}
  nowhere: ${no.where}
"""


def test_problems_of_an_invalid_program_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.yaml"
    path.write_text(WRONG)
    assert sorted(ProgramCheck.check_file(path, SCHEMA).problems) == sorted(
        [
            "gpus: is several things",
            "config.gpus: has a default of another type",
            "variables.images: there is no function gpuform:scp:image",
            "variables.pools: has no zone",
            "variables.pools: lacks region_id",
            "variables.pools: there is no all in object",
            "variables.joined: fn::sum is not known",
            "resources.data: has no sise",
            "resources.data: lacks region",
            "resources.data.volume_name: is {'type': 'integer'}, not string",
            "resources.data.size_tib: there is no status in object",
            "resources.data.options: has no depends",
            "resources.data.options: ${nothing} is no resource",
            "resources.data.options: ${none} is no resource",
            "resources.train: has an unknown type gpuform:together:Clusters",
            "resources.gpus.condition: has no healthy_node",
            "resources.bench.cluster_name: data.ready is not a string",
            "resources.bench.region: there is no regions in object",
            "resources.bench.gpu_type: data.region[0 is no property access",
            "resources.bench.num_gpus: is {'type': 'boolean'}, not integer",
            "resources.bench.billing_type: FREE is none of the values",
            "outputs.nowhere: there is no no",
        ]
    )


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("a", ["a"]),
        ("east-node-1.gpus.count", ["east-node-1", "gpus", "count"]),
        ('a.b["8888"][0].c', ["a", "b", "8888", 0, "c"]),
        ("", None),
        ("a[b]", None),
        ("a + b", None),
        (".a", None),
    ],
)
def test_property_accesses(text: str, path: list[str | int] | None) -> None:
    assert parse_access(text) == path
