"""Modules from the command line: a topology and a program that use one, in every command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject
from support.topologies.topology_planner import declare_volume

POOL = f"""inputs:
  tib: {{type: integer, minimum: 1}}
  label: {{}}
shared_volumes:
  data: {declare_volume(volume_name="'{{ inputs.label }}'", size_tib="'{{ inputs.tib }}'")}
outputs:
  volume: "{{{{ shared_volumes.data }}}}"
  token: "{{{{ inputs.label ~ '-token' }}}}"
"""
TOPOLOGY = """config:
  tib: {type: integer, default: 2}
include:
  - file: pool.yaml
    name: team
    for_each: {a: one, b: two}
    with: {tib: "{{ config.tib }}", label: "{{ each.value }}"}
outputs:
  first: "{{ modules.team.a.volume }}"
"""
PROGRAM = """
import pulumi
from gpuform.stacks import Module

tib = pulumi.Config().get_int("tib") or 2
teams = {key: Module(f"team-{key}", "pool.yaml", {"tib": tib, "label": label})
         for key, label in {"a": "one", "b": "two"}.items()}
pulumi.export("first", teams["a"].outputs["volume"])
"""
Run = Callable[..., Any]


@pytest.fixture
def teams(planned_project: PlannedProject, project: Path) -> Run:
    """A topology that includes the module twice."""
    (project / "__main__.py").unlink()
    (project / "topology.yaml").write_text(TOPOLOGY)
    (project / "pool.yaml").write_text(POOL)
    return planned_project.run


def done(run: Run, *args: str) -> str:
    ran = run(*args)
    assert ran.code == 0, ran.out + ran.err
    return str(ran.out)


@pytest.mark.slow
def test_a_topology_and_a_program_are_one_plan(teams: Run, project: Path) -> None:
    assert done(teams, "validate") == "topology.yaml is valid: 2 resources\n"
    done(teams, "up", "--yes", "--skip-preview")
    listed = done(teams, "state", "list")
    module = "urn:pulumi:dev::demo::gpuform:stacks:Module"
    assert f"{module}::team-a " in listed
    assert f"{module}$pulumi-python:dynamic/gpuform.together:SharedVolume::team-b-data " in listed
    done(teams, "preview", "--expect-no-changes")
    assert 'graph [label="team-a\\nModule"]' in done(teams, "graph")
    (project / "topology.yaml").unlink()
    (project / "__main__.py").write_text(PROGRAM)
    done(teams, "preview", "--expect-no-changes")
    done(teams, "config", "set", "tib", "3")
    assert "~ size_tib: 2 => 3" in done(teams, "preview")
    done(teams, "destroy", "--yes")


def test_problems_are_told_with_both_places(teams: Run, project: Path) -> None:
    (project / "pool.yaml").write_text(POOL.replace("us-central-8", "5"))
    told = teams("validate")
    assert told.code == 1
    assert told.out.startswith(
        "pool.yaml:5:38, included at topology.yaml:4:5: "
        "modules.team.a.shared_volumes.data.region: must be text"
    )
    as_json = teams("validate", "--format", "json").json[0]
    assert as_json["included_at"] == [{"file": "topology.yaml", "line": 4, "column": 5}]
    assert "%0Aincluded at topology.yaml:4:5" in teams("validate", "--format", "github").out


def test_problems_of_a_program_are_told_with_its_line(teams: Run, project: Path) -> None:
    (project / "topology.yaml").unlink()
    (project / "__main__.py").write_text(PROGRAM.replace('"tib": tib', '"tib": 0, "tob": 1'))
    ran = teams("preview")
    assert ran.code == 1
    assert "__main__.py:6:1: modules.team-a has no input tob" in ran.out + ran.err
    assert "__main__.py:6:1: modules.team-a.with.tib: 0 is less than 1" in ran.out + ran.err


def test_an_input_that_is_known_only_later_is_checked_then(teams: Run, project: Path) -> None:
    text = TOPOLOGY.replace('"{{ each.value }}"', '"{{ shared_volumes.x.id[:0] }}"')
    (project / "topology.yaml").write_text(text + f"shared_volumes:\n  x: {declare_volume()}\n")
    (project / "pool.yaml").write_text(POOL.replace("label: {}", "label: {min_length: 3}"))
    ran = teams("up", "--yes", "--skip-preview")
    assert ran.code == 1
    assert "topology.yaml:7:44: modules.team." in ran.out
    assert '.with.label: "" is shorter than 3' in ran.out


def test_it_is_converted_to_a_program(teams: Run, project: Path) -> None:
    done(teams, "up", "--yes", "--skip-preview")
    done(teams, "convert")
    program = (project / "__main__.py").read_text()
    assert 'Module(\n        f"team-{key}",\n        "pool.yaml",' in program
    (project / "topology.yaml").unlink()
    done(teams, "preview", "--expect-no-changes")
    refused = teams("convert", "--from", "state", "--out", "-")
    assert refused.code == 1
    assert "team-a is an instance of a module; the module's file is unknown here" in refused.err


def test_modules_are_formatted_too(teams: Run, project: Path) -> None:
    (project / "pool.yaml").write_text(POOL.replace("\noutputs", "\n\n\n\noutputs"))
    assert done(teams, "fmt") == "pool.yaml\n"


def test_entries_are_imported_beside_modules(teams: Run, project: Path) -> None:
    done(teams, "up", "--yes", "--skip-preview")
    refused = teams(
        "import", "--all", "--platform", "together", "--out", "pool.yaml", "--preview-only"
    )
    assert refused.code == 1
    assert "pool.yaml is not part of topology.yaml" in refused.err
    assert "adds no entries to modules" in refused.err


def test_an_entry_moves_into_a_module(teams: Run, project: Path) -> None:
    (project / "topology.yaml").write_text(f"shared_volumes:\n  old: {declare_volume()}\n")
    done(teams, "up", "--yes", "--skip-preview")
    aliased = declare_volume(options="{aliases: [{name: old, parent: null}]}")
    (project / "pool.yaml").write_text(f"inputs: {{}}\nshared_volumes:\n  data: {aliased}\n")
    (project / "topology.yaml").write_text("include: {file: pool.yaml, name: team}\n")
    told = done(teams, "up", "--yes")
    assert "1 to create" in told, "the module's component"
    done(teams, "preview", "--expect-no-changes")
    assert "::team-data " in done(teams, "state", "list")
