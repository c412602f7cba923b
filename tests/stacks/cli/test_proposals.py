"""Test how a proposed topology, as planned by `gpuform mcp`, may use secrets."""

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
def proposed_project(
    planned_project: PlannedProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PlannedProject:
    """Create a stack with a secret, and propose its topology to a project in another folder."""
    team = tmp_path / "team"
    team.mkdir()
    (team / "topology.yaml").write_text(TOPOLOGY)
    (planned_project.project / "__main__.py").unlink()
    (planned_project.project / "topology.yaml").write_text(TOPOLOGY)
    assert planned_project.run("config", "set", "--secret", "token", SECRET).code == 0
    assert planned_project.run("up", "--yes").code == 0
    monkeypatch.setenv("GPUFORM_PROPOSED_TO", str(team))
    return planned_project


def preview(planned_project: PlannedProject, topology: str) -> str:
    (planned_project.project / "topology.yaml").write_text(topology)
    ran = planned_project.run("preview")
    output = ran.out + ran.err
    assert SECRET not in output
    assert (ran.code == 0) == ("error: " not in output)
    return output


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


def test_a_proposal_cannot_compute_with_a_secret(proposed_project: PlannedProject) -> None:
    for question in QUESTIONS:
        expression = question if "{{" in question else f"{{{{ {question} }}}}"
        output = preview(
            proposed_project, TOPOLOGY.replace("volume_name: data", f'volume_name: "{expression}"')
        )
        assert "cannot use a secret" in output, question


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("config[config.token]", "error: a proposal cannot use a secret"),
        ("shared_volumes[config.token].id", "shared_volumes[...] does not name an entry"),
    ],
)
def test_a_proposal_cannot_select_by_a_secret(
    proposed_project: PlannedProject, chosen: str, expected: str
) -> None:
    """A plan that depends on the presence of a name would reveal the secret."""
    own = f'volume_name: "{{{{ {chosen} }}}}"'
    assert expected in preview(proposed_project, TOPOLOGY.replace("volume_name: data", own))


def test_a_proposal_can_pass_a_secret_on(
    proposed_project: PlannedProject,
) -> None:
    more = '  again: "{{ config.token }}"\n  same: "{{ config.name }}-{{ config.token }}"\n'
    assert "again: [secret]" in preview(proposed_project, TOPOLOGY + more)


def test_a_proposal_can_compute_with_other_values(proposed_project: PlannedProject) -> None:
    more = '  id: "{{ shared_volumes.data.id | upper }}"\n'
    assert "error: " not in preview(proposed_project, TOPOLOGY + more)


LIMITS = ["pattern: 'p.*'", "min_length: 5", "enum: [a, b]", "type: integer", "max_length: 3"]


def test_a_proposal_cannot_check_a_secret_against_new_limits(
    proposed_project: PlannedProject,
) -> None:
    for limit in LIMITS:
        output = preview(
            proposed_project, TOPOLOGY.replace("{secret: true}", f"{{secret: true, {limit}}}")
        )
        expected = "config.token: a proposal cannot check a secret against limits that no file"
        assert expected in output, limit


def test_a_proposal_cannot_check_a_secret_in_a_module(proposed_project: PlannedProject) -> None:
    module = "inputs: {given: {pattern: 'p.*'}}\noutputs: {a: '{{ inputs.given }}'}\n"
    (proposed_project.project / "m.yaml").write_text(module)
    topology = TOPOLOGY + '  a: "{{ modules.m.a }}"\n'
    topology += "include: [{file: m.yaml, name: m, with: {given: '{{ config.token }}'}}]\n"
    assert "modules.m.with.given: a proposal cannot check a secret" in preview(
        proposed_project, topology
    )


def test_an_encrypted_value_stays_secret_if_declared_otherwise(
    proposed_project: PlannedProject,
) -> None:
    """The stack's settings have the value encrypted."""
    output = preview(proposed_project, TOPOLOGY.replace("{secret: true}", "{default: x}"))
    assert "unchanged" in output


def test_a_number_in_a_secret_object_is_not_printed(planned_project: PlannedProject) -> None:
    """Neither the number nor an error about the number is printed."""
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
