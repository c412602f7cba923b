"""Python programs of topologies: as a person would write them, where the meaning is equal."""

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from support.topologies.registrations import record_registrations

from gpuform.stacks.convert import NotConverted
from gpuform.stacks.operations.converting import convert_topology_to_python

Convert = Callable[[str], str]

VOLUME = "{platform: together, volume_name: d, region: us-central-8, size_tib: 5}"
CLUSTER = (
    "platform: together, region: us-central-8, gpu_type: H100_SXM, num_gpus: 16, "
    "driver_version: CUDA_12_6_560, billing_type: ON_DEMAND"
)


@pytest.fixture
def convert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Convert:
    """Return a function that converts a topology and compares the registrations."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")

    def convert_and_compare(text: str) -> str:
        (tmp_path / "topology.yaml").write_text(dedent(text))
        program = convert_topology_to_python(Path("topology.yaml"), None, Path())
        expected = record_registrations(tmp_path)
        program_folder = tmp_path / "python"
        program_folder.mkdir(exist_ok=True)
        (program_folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
        (program_folder / "__main__.py").write_text(program)
        assert record_registrations(program_folder) == expected
        return program

    return convert_and_compare


CONFIG = """
config:
  n: {type: integer, default: 3}
  on: {type: boolean, default: true}
  name: {default: x}
  names: {type: array, default: [a, b]}
  key: {secret: true, default: k}
"""


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("{{ config.n }}", "n"),
        ("{{ config.n + 1 }}", "n + 1"),
        ("{{ (config.n + 1) * 2 }}", "(n + 1) * 2"),
        ("{{ config.n // 2 if config.on else 0 }}", "(n // 2) if on else 0"),
        ("{{ not config.on or config.n in [1, 3] }}", "(not on) or (n in [1, 3])"),
        ("{{ config.name | upper }}", "name.upper()"),
        ("{{ config.names | length }}", "len(names)"),
        ("{{ config.names[1] }}", "names[1]"),
        ("a-{{ config.name }}-{{ config.n }}", 'f"a-{name}-{n}"'),
        ("{{ 'a' ~ config.name }}", 'f"a{name}"'),
        ("{{ pulumi.stack }}", "pulumi.get_stack()"),
        ("{{ shared_volumes.data }}", "data.id"),
        ("{{ shared_volumes.data.volume_name }}", "data.volume_name"),
        ("to {{ shared_volumes.data.volume_name }}", 'pulumi.Output.concat("to ", data.volume'),
        ("{{ config.key }}", "key_config"),
        ("{{ config.names | join('+') }}", "expression(\"{{ config.names | join('+') }}\", "),
        ("is {{ config.on }}", 'expression("is {{ config.on }}", config={"on": on})'),
        ("{{ config.n / 2 }}", "n / 2"),
        ("{'q': {{ config.name }}}", "f\"{{'q': {name}}}\""),
        ("{{ shared_volumes.data.status | upper }}", 'expression("{{ shared_volumes.data.status'),
    ],
)
def test_an_expression_becomes_equal_python(convert: Convert, expression: str, code: str) -> None:
    quoted = expression.replace("'", "''")
    program = convert(f"{CONFIG}\nshared_volumes: {{data: {VOLUME}}}\noutputs: {{o: '{quoted}'}}\n")
    assert f'pulumi.export("o", {code}' in program


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_for_each_becomes_a_python_loop_with_comments(convert: Convert) -> None:
    program = convert(
        f"""\
        # Volumes of two regions, and what mounts them.
        shared_volumes:
          # One each.
          data:
            platform: together
            for_each: {{a: us-central-8, b: us-central-4}}
            when: "{{{{ pulumi.stack == 'dev' }}}}"
            volume_name: "data-{{{{ each.key }}}}"
            region: "{{{{ each.value }}}}"
            size_tib: 5
        clusters:
          train: {{cluster_name: t, volume: "{{{{ shared_volumes.data.a }}}}", {CLUSTER},
            options: {{depends_on: "{{{{ shared_volumes.data }}}}", protect: true}}}}
        """
    )
    assert program.startswith('"""Volumes of two regions, and what mounts them."""\n')
    assert (
        "# One each.\n"
        "data = {}\n"
        'for key, value in {"a": "us-central-8", "b": "us-central-4"}.items():\n'
        '    if pulumi.get_stack() == "dev":\n'
        "        data[key] = together.SharedVolume(\n"
        '            f"data-{key}",\n'
        '            volume_name=f"data-{key}",\n'
        "            region=value,\n"
        "            size_tib=5,\n"
        "        )\n"
    ) in program
    assert '    volume_id=data["a"].id,\n' in program
    assert "opts=pulumi.ResourceOptions(depends_on=[*data.values()], protect=True)" in program


def test_resource_options_are_converted(convert: Convert) -> None:
    program = convert(
        f"""\
        shared_volumes:
          data: {VOLUME}
          more:
            platform: together
            volume_name: m
            region: us-central-8
            size_tib: 5
            options:
              retain_on_delete: true
              timeouts: {{create: 45m, delete: 1h}}
              aliases: [{{name: old}}, {{parent: "{{{{ shared_volumes.data }}}}"}}]
              deleted_with: "{{{{ shared_volumes.data }}}}"
              replace_on_changes: [region]
              additional_secret_outputs: [status]
              replacement_trigger: "{{{{ shared_volumes.data.status }}}}"
        """
    )
    for written in (
        "retain_on_delete=True",
        'custom_timeouts=pulumi.CustomTimeouts(create="45m", delete="1h")',
        'aliases=[pulumi.Alias(name="old"), pulumi.Alias(parent=data)]',
        "deleted_with=data",
        'replace_on_changes=["region"]',
        "replacement_trigger=data.status",
    ):
        assert written in program


def test_limits_of_configuration_become_checks(convert: Convert, tmp_path: Path) -> None:
    program = convert(
        """\
        config:
          gpus: {type: integer, default: 16, multiple_of: 8, maximum: 64}
          share: {type: number, default: 0.3, multiple_of: 0.1}
          name: {default: a-b, pattern: "[a-z-]{2,}", min_length: 2}
          key: {secret: true, default: "12345678", min_length: 8}
        outputs: {all: ["{{ config.gpus }}", "{{ config.share }}", "{{ config.key }}"]}
        """
    )
    assert 'gpus = config.get_int("gpus", 16)\nif gpus > 64:\n    raise pulumi.RunError(' in program
    program_folder = tmp_path / "python"
    for setting, message in {
        "gpus=12": "config.gpus: 12 is not a multiple of 8",
        "gpus=72": "config.gpus: 72 is more than 64",
        "share=0.25": "config.share: 0.25 is not a multiple of 0.1",
        "name=A-": "config.name: 'A-' does not match [a-z-]{2,}",
        "key=short": "config.key: its value is shorter than 8",
    }.items():
        name, _, value = setting.partition("=")
        with pytest.raises(Exception, match="config") as raised:
            record_registrations(program_folder, {name: value})
        assert message in str(raised.value)


def test_configuration_encrypted_in_a_stack_is_read_as_secret(
    convert: Convert, tmp_path: Path
) -> None:
    (tmp_path / "Pulumi.prod.yaml").write_text("config:\n  demo:name:\n    secure: v1:abc\n")
    assert 'name = config.get_secret("name", "x")' in convert(CONFIG)


def test_entries_depending_on_each_other_in_a_cycle_are_refused(tmp_path: Path) -> None:
    topology = dedent(
        f"""\
        clusters:
          one: {{for_each: {{a: x, b: "{{{{ clusters.two.a.id }}}}"}}, cluster_name: a, {CLUSTER}}}
          two: {{for_each: {{a: "{{{{ clusters.one.a.id }}}}"}}, cluster_name: b, {CLUSTER}}}
        """
    )
    (tmp_path / "topology.yaml").write_text(topology)
    with pytest.raises(NotConverted, match=r"clusters\.one -> clusters\.two -> clusters\.one"):
        convert_topology_to_python(tmp_path / "topology.yaml", None, tmp_path)


def test_a_for_each_over_its_own_instances_is_refused(tmp_path: Path) -> None:
    loop = "{b: '{{ clusters.t.a.id }}', a: x}"
    topology = f"clusters:\n  t: {{for_each: {loop}, cluster_name: c, {CLUSTER}}}\n"
    (tmp_path / "topology.yaml").write_text(topology)
    with pytest.raises(NotConverted, match="refers to its own instances"):
        convert_topology_to_python(tmp_path / "topology.yaml", None, tmp_path)
