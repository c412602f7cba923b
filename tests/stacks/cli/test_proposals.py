"""What a proposed topology may do with secrets; `gpuform mcp` plans proposals so."""

from pathlib import Path

import pytest

from .conftest import PlannedProject

SECRET = "planted-3c71"
VOLUME = "{platform: together, volume_name: data, region: us-central-8, size_tib: 5}"
TOPOLOGY = f"""\
config:
  token: {{secret: true}}
  name: {{default: data}}
shared_volumes:
  data: {VOLUME}
outputs:
  token: "{{{{ config.token }}}}"
  joined: "{{{{ config.name }}}}-{{{{ config.token }}}}"
"""


@pytest.fixture
def proposed(
    planned_project: PlannedProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PlannedProject:
    """A stack with a secret; its topology is proposed to the project in another folder."""
    team = tmp_path / "team"
    team.mkdir()
    (team / "topology.yaml").write_text(TOPOLOGY)
    (planned_project.project / "__main__.py").unlink()
    (planned_project.project / "topology.yaml").write_text(TOPOLOGY)
    assert planned_project.run("config", "set", "--secret", "token", SECRET).code == 0
    assert planned_project.run("up", "--yes").code == 0
    monkeypatch.setenv("GPUFORM_PROPOSED_TO", str(team))
    return planned_project


def previewed(planned_project: PlannedProject, topology: str) -> str:
    (planned_project.project / "topology.yaml").write_text(topology)
    ran = planned_project.run("preview")
    told = ran.out + ran.err
    assert SECRET not in told
    assert (ran.code == 0) == ("error: " not in told)
    return told


QUESTIONS = [
    "'data' if config.token[0] == 'p' else 'other'",
    "1 // 0 if config.token > 'm' else 'data'",
    "{'p': 'data'}[config.token[0]]",
    "config.token[0]",
    "config.token | length",
    "'data'[:config.token | length]",
    "['data', 'x'][0 if 'planted' in config.token else 1]",
    "config.token ~ ''",
    "x{{ config.token }}",
]


def test_it_makes_nothing_of_a_secret(proposed: PlannedProject) -> None:
    for question in QUESTIONS:
        text = question if "{{" in question else f"{{{{ {question} }}}}"
        told = previewed(proposed, TOPOLOGY.replace("volume_name: data", f'volume_name: "{text}"'))
        assert "cannot use a secret" in told, question


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("config[config.token]", "error: a proposal cannot use a secret"),
        ("shared_volumes[config.token].id", "shared_volumes[...] does not name an entry"),
    ],
)
def test_a_secret_chooses_nothing_by_name(
    proposed: PlannedProject, chosen: str, expected: str
) -> None:
    """Whether the name is there would tell."""
    own = f'volume_name: "{{{{ {chosen} }}}}"'
    assert expected in previewed(proposed, TOPOLOGY.replace("volume_name: data", own))


def test_it_passes_a_secret_on_and_makes_of_it_what_the_project_makes(
    proposed: PlannedProject,
) -> None:
    more = '  again: "{{ config.token }}"\n  same: "{{ config.name }}-{{ config.token }}"\n'
    assert "again: [secret]" in previewed(proposed, TOPOLOGY + more)


def test_it_makes_anything_of_what_is_not_secret(proposed: PlannedProject) -> None:
    more = '  id: "{{ shared_volumes.data.id | upper }}"\n'
    assert "error: " not in previewed(proposed, TOPOLOGY + more)


LIMITS = ["pattern: 'p.*'", "min_length: 5", "enum: [a, b]", "type: integer", "max_length: 3"]


def test_it_holds_no_secret_against_limits_of_its_own(proposed: PlannedProject) -> None:
    for limit in LIMITS:
        told = previewed(proposed, TOPOLOGY.replace("{secret: true}", f"{{secret: true, {limit}}}"))
        expected = "config.token: a proposal cannot check a secret against limits that no file"
        assert expected in told, limit


def test_nor_by_the_input_of_a_module(proposed: PlannedProject) -> None:
    module = "inputs: {given: {pattern: 'p.*'}}\noutputs: {a: '{{ inputs.given }}'}\n"
    (proposed.project / "m.yaml").write_text(module)
    whole = TOPOLOGY + '  a: "{{ modules.m.a }}"\n'
    whole += "include: [{file: m.yaml, name: m, with: {given: '{{ config.token }}'}}]\n"
    assert "modules.m.with.given: a proposal cannot check a secret" in previewed(proposed, whole)


def test_a_secret_that_is_declared_as_none_is_one(proposed: PlannedProject) -> None:
    """It is encrypted in the stack's settings."""
    told = previewed(proposed, TOPOLOGY.replace("{secret: true}", "{default: x}"))
    assert "unchanged" in told


def test_a_number_in_a_secret_object_is_not_told(planned_project: PlannedProject) -> None:
    """Neither as it is nor by what is wrong with it."""
    (planned_project.project / "__main__.py").unlink()
    (planned_project.project / "topology.yaml").write_text(
        "config: {ob: {type: object, secret: true}}\n"
        "clusters:\n  dev: {platform: tensorone, name: dev, project_id: proj_456, gpu_type: A100,"
        " gpu_count: 1, storage_gb: 500, template_id: t, region: us-west-2,"
        " tags: '{{ config.ob }}'}\n"
    )
    assert planned_project.run("config", "set", "--secret", "ob", '{"n": 77123}').code == 0
    ran = planned_project.run("preview")
    assert ran.code == 1
    assert "tags.n" in ran.out + ran.err
    assert "77123" not in ran.out + ran.err
