"""Test the JSON Schema of topology files: what it accepts, refuses and describes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator
from support.topologies.declarations import CLUSTER

from gpuform.providers.catalog import list_platforms_with, load_lifecycle_class
from gpuform.schemas.rules import get_field_rules
from gpuform.schemas.topology import SECTIONS, ConfigInputs, EntryInputs, get_reference_fields
from gpuform.stacks.cli.app import cli
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.json_schema import build_topology_schema
from gpuform.stacks.topology.planning import plan, read_plan_context

SCHEMA = build_topology_schema()
EXAMPLE = """
include:
  - volumes.yaml
  - {file: pool.yaml, name: pool, for_each: [a], when: true, with: {label: "x-{{ each.key }}"}}
config:
  gpus: {type: integer, default: 16, multiple_of: 8}
stack_references: {network: organization/network/prod}
defaults:
  clusters: {together: {billing_type: ON_DEMAND, options: {protect: true}}}
x-anything: &a {region: us-central-8}
shared_volumes:
  data: {platform: together, volume_name: data, <<: *a, size_tib: 5, options: {protect: true}}
clusters:
  train:
    platform: together
    for_each: {a: us-central-8, b: us-central-8}
    when: "{{ config.gpus > 0 }}"
    cluster_name: "train-{{ each.key }}"
    region: "{{ each.value }}"
    gpu_type: H100_SXM
    driver_version: CUDA_12_6_560
    num_gpus: "{{ config.gpus }}"
    volume: "{{ shared_volumes.data }}"
    options: {timeouts: {create: 45m}}
outputs:
  kubeconfig: "{{ clusters.train.a.kube_config }}"
"""
EXPRESSION = "{{ config.anything }}"
KINDS = [
    (section, platform)
    for section, kind in SECTIONS.items()
    for platform in list_platforms_with(kind)
]


def find_schema_problems(file: Any) -> list[str]:
    """Return the problems of a file, as "path: message"."""
    errors = Draft7Validator(SCHEMA).iter_errors(file)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in errors]


def get_inputs_model(section: str, platform: str) -> Any:
    return load_lifecycle_class(platform, SECTIONS[section]).inputs


def declare_property(section: str, platform: str, name: str, value: Any) -> dict[str, Any]:
    return {section: {"one": {"platform": platform, name: value}}}


def declare_train(**properties: Any) -> dict[str, Any]:
    return {"clusters": {"train": {"platform": "together", **CLUSTER, **properties}}}


def test_the_schema_is_valid() -> None:
    Draft7Validator.check_schema(SCHEMA)


def test_the_schema_accepts_the_example() -> None:
    assert find_schema_problems(yaml.safe_load(EXAMPLE)) == []


@pytest.mark.parametrize("file", [{}, {"clusters": None}, {"x-any": 3}, {"clusters": {}}])
def test_the_schema_accepts_an_incomplete_file(file: Any) -> None:
    assert find_schema_problems(file) == []


@pytest.mark.parametrize(("section", "platform"), KINDS)
def test_the_schema_accepts_the_examples_of_fields(section: str, platform: str) -> None:
    for model in (get_inputs_model(section, platform), EntryInputs):
        for name, field in model.model_fields.items():
            for example in field.examples if name != "platform" else ():
                assert (
                    find_schema_problems(declare_property(section, platform, name, example)) == []
                )
                if model is not EntryInputs:
                    defaults = {section: {platform: {name: example}}}
                    assert find_schema_problems({"defaults": defaults}) == []


def test_the_schema_accepts_the_examples_of_configuration() -> None:
    for name, field in ConfigInputs.model_fields.items():
        for example in field.examples or ():
            assert find_schema_problems({"config": {"gpus": {name: example}}}) == []


@pytest.mark.parametrize(("section", "platform"), KINDS)
def test_the_schema_accepts_expressions_and_null_for_every_value(
    section: str, platform: str
) -> None:
    for model in (get_inputs_model(section, platform), EntryInputs):
        for name in model.model_fields:
            for value in (EXPRESSION, None):
                if name != "platform" and (name != "options" or value is None):
                    assert (
                        find_schema_problems(declare_property(section, platform, name, value)) == []
                    )


def list_inner_schemas(schema: Any) -> Iterator[Any]:
    """Yield the schemas of values inside objects, lists and maps."""
    if "properties" in schema:
        yield from schema["properties"].values()
    for inner in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(inner, dict):
            yield inner


@pytest.mark.parametrize(("section", "platform"), KINDS)
def test_the_schema_accepts_expressions_at_every_depth(section: str, platform: str) -> None:
    remaining_schemas = list(SCHEMA["definitions"][f"{section}.{platform}"]["properties"].items())
    remaining_schemas = [
        schema for name, schema in remaining_schemas if name not in ("platform", "options")
    ]
    remaining_schemas.extend(list_inner_schemas(SCHEMA["definitions"]["entry.options"]))
    while remaining_schemas:
        schema = remaining_schemas.pop()
        complete_schema = {**schema, "definitions": SCHEMA["definitions"]}
        assert Draft7Validator(complete_schema).is_valid(EXPRESSION), schema
        remaining_schemas.extend(list_inner_schemas(schema))


REFUSED = [
    (declare_train(num_gpu=8), "'num_gpu' was unexpected"),
    (declare_train(num_gpus=12), "clusters.train.num_gpus: 12 is not a multiple of 8"),
    (declare_train(num_gpus="16"), "clusters.train.num_gpus: '16' does not match"),
    (declare_train(auto_scale="yes"), "clusters.train.auto_scale: 'yes' does not match"),
    (declare_train(nvidia_driver_version=560), "560 is not of type 'string'"),
    (declare_train(billing_type="PREPAID"), "clusters.train.billing_type: 'PREPAID' is not valid"),
    (declare_train(volume=3), "clusters.train.volume: 3 is not of type 'string'"),
    (declare_train(options=EXPRESSION), "clusters.train.options: '{{ config.anything }}' is not"),
    (declare_train(shared_volumes={}), "'shared_volumes' was unexpected"),
    (declare_train(cluster_config={"load": "NGINX"}), "'load' was unexpected"),
    (declare_train(add_ons=[{"name": "ui"}]), "'add_on_type' is a required property"),
    (declare_train(oidc_config={"client_id": "a"}), "'issuer_url' is a required property"),
    (declare_train(options={"protct": True}), "'protct' was unexpected"),
    (declare_train(options={"protect": "on"}), "clusters.train.options.protect: 'on' does not"),
    ({"clusters": {"train": {"platform": "scp"}}}, "clusters.train.platform: 'scp' is not"),
    ({"clusters": {"train": {"platform": "azure"}}}, "'azure' is not one of"),
    ({"clusters": {"train": {"region": "a"}}}, "'platform' is a required property"),
    ({"clusters": {"train": None}}, "clusters.train: None is not of type 'object'"),
    ({"clusters": {"a b": {"platform": "together"}}}, "'a b' does not match"),
    ({"clusters": []}, "clusters: [] is not of type 'object', 'null'"),
    ({"clustrs": {}}, "'clustrs' does not match any"),
    ({"config": {"gpus": {"type": "int"}}}, "config.gpus.type: 'int' is not valid"),
    ({"config": {"a b": {}}}, "'a b' does not match"),
    ({"include": "volumes.yaml"}, "include: 'volumes.yaml' is not of type 'array'"),
    ({"include": [3]}, "include.0: 3 is not of type 'string'"),
    ({"include": [{"file": "pool.yaml"}]}, "include.0: 'name' is a required property"),
    ({"include": {"name": "pool"}}, "include: 'file' is a required property"),
    ({"include": {"file": "a", "name": "a b"}}, "include.name: 'a b' does not match"),
    ({"include": {"file": "a", "name": "a", "inputs": {}}}, "'inputs' was unexpected"),
    ({"inputs": {"gpus": {"type": "int"}}}, "inputs.gpus.type: 'int' is not valid"),
    ({"defaults": {"clusters": {"scp": {}}}}, "'scp' was unexpected"),
    ({"defaults": {"clusters": {"together": {"num_gpu": 8}}}}, "'num_gpu' was unexpected"),
    ({"defaults": {"clusters": {"together": {"num_gpus": 4}}}}, "4 is less than the minimum"),
    ({"defaults": {"clusters": {"together": {"for_each": []}}}}, "'for_each' was unexpected"),
]


@pytest.mark.parametrize(("file", "message"), REFUSED)
def test_the_schema_refuses_invalid_files(file: Any, message: str) -> None:
    problems = find_schema_problems(file)
    assert any(message in problem for problem in problems), problems


@pytest.mark.parametrize("file", [file for file, _ in REFUSED if "defaults" not in file])
def test_validate_refuses_what_the_schema_refuses(file: Any, tmp_path: Path) -> None:
    assert validate_file(yaml.safe_dump(file), tmp_path)


def test_validate_accepts_the_example(tmp_path: Path) -> None:
    (tmp_path / "volumes.yaml").write_text("{}")
    (tmp_path / "pool.yaml").write_text("inputs: {label: {}}")
    assert validate_file(EXAMPLE, tmp_path) == []


def validate_file(text: str, folder: Path) -> list[str]:
    """Return the problems of a file from `gpuform validate`."""
    path, find_schema_problems = folder / "topology.yaml", Diagnostics()
    path.write_text(text)
    plan(path, read_plan_context(path, None), find_schema_problems)
    return list(map(str, find_schema_problems))


@pytest.mark.parametrize(("section", "platform"), KINDS)
def test_the_schema_describes_every_property(section: str, platform: str) -> None:
    model = get_inputs_model(section, platform)
    message = SCHEMA["definitions"][f"{section}.{platform}"]["properties"]
    assert set(message) == {
        *EntryInputs.model_fields,
        *model.model_fields,
        *get_reference_fields(model),
    }
    for name, rules in get_field_rules(model).items():
        assert message[name]["description"].startswith(model.model_fields[name].description)
        assert message[name]["examples"] == model.model_fields[name].examples
        assert ("default" in message[name]) == (rules.default is not None)


def test_the_schema_lists_the_platforms_of_a_kind() -> None:
    platforms = SCHEMA["definitions"]["gpu_nodes"]["properties"]["platform"]["enum"]
    assert platforms == ["scp", "aios"]


def test_the_committed_schema_can_be_read() -> None:
    committed = Path(__file__).parents[2] / "schemas" / "topology.schema.json"
    assert json.loads(committed.read_text()) == SCHEMA


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("schema") == 0
    assert json.loads(capsys.readouterr().out) == SCHEMA


def test_the_command_writes_the_schema(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "topology.schema.json"
    assert run("schema", "--output", str(path)) == 0
    assert json.loads(path.read_text()) == SCHEMA
    assert run("schema", "-o", str(tmp_path / "missing" / "file.json")) == 1
    message = capsys.readouterr()
    assert message.out == ""
    assert "missing/file.json': No such file or directory" in message.err


def test_a_project_links_to_the_installed_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("schema", "--link") == 1
    assert "Pulumi.yaml" in capsys.readouterr().err
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert run("schema", "--link", "--of", "plan") == 2
    assert run("schema", "--link") == 0
    link = tmp_path / ".gpuform/topology.schema.json"
    assert link.stat().st_size < 1000
    installed = json.loads(link.read_text())["$ref"].removeprefix("file://")
    assert json.loads(Path(installed).read_text()) == SCHEMA


def run(*arguments: str) -> Any:
    with pytest.raises(SystemExit) as ended:
        cli.main(args=list(arguments), prog_name="gpuform")
    return ended.value.code
