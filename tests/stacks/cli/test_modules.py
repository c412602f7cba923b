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
def modular_stack(planned_project: PlannedProject, project: Path) -> Run:
    """Return the commands of a project whose topology includes the module twice."""
    (project / "__main__.py").unlink()
    (project / "topology.yaml").write_text(TOPOLOGY)
    (project / "pool.yaml").write_text(POOL)
    return planned_project.run


def run_successfully(run: Run, *args: str) -> str:
    ran = run(*args)
    assert ran.code == 0, ran.out + ran.err
    return str(ran.out)


@pytest.mark.slow
def test_a_topology_and_a_program_with_a_module_plan_the_same(
    modular_stack: Run, project: Path
) -> None:
    assert run_successfully(modular_stack, "validate") == "topology.yaml is valid: 2 resources\n"
    run_successfully(modular_stack, "up", "--yes", "--skip-preview")
    output = run_successfully(modular_stack, "state", "list")
    module = "urn:pulumi:dev::demo::gpuform:stacks:Module"
    assert f"{module}::team-a " in output
    assert f"{module}$pulumi-python:dynamic/gpuform.together:SharedVolume::team-b-data " in output
    run_successfully(modular_stack, "preview", "--expect-no-changes")
    assert 'graph [label="team-a\\nModule"]' in run_successfully(modular_stack, "graph")
    (project / "topology.yaml").unlink()
    (project / "__main__.py").write_text(PROGRAM)
    run_successfully(modular_stack, "preview", "--expect-no-changes")
    run_successfully(modular_stack, "config", "set", "tib", "3")
    assert "~ size_tib: 2 => 3" in run_successfully(modular_stack, "preview")
    run_successfully(modular_stack, "destroy", "--yes")


def test_problems_in_a_module_name_both_positions(modular_stack: Run, project: Path) -> None:
    (project / "pool.yaml").write_text(POOL.replace("us-central-8", "5"))
    validated = modular_stack("validate")
    assert validated.code == 1
    assert validated.out.startswith(
        "pool.yaml:5:38, included at topology.yaml:4:5: "
        "modules.team.a.shared_volumes.data.region: must be text"
    )
    as_json = modular_stack("validate", "--format", "json").json[0]
    assert as_json["included_at"] == [{"file": "topology.yaml", "line": 4, "column": 5}]
    assert "%0Aincluded at topology.yaml:4:5" in modular_stack("validate", "--format", "github").out


def test_wrong_module_inputs_of_a_program_name_its_line(modular_stack: Run, project: Path) -> None:
    (project / "topology.yaml").unlink()
    (project / "__main__.py").write_text(PROGRAM.replace('"tib": tib', '"tib": 0, "tob": 1'))
    ran = modular_stack("preview")
    assert ran.code == 1
    assert "__main__.py:6:1: modules.team-a has no input tob" in ran.out + ran.err
    assert "__main__.py:6:1: modules.team-a.with.tib: 0 is less than 1" in ran.out + ran.err


def test_an_input_known_after_apply_is_checked_when_it_is_known(
    modular_stack: Run, project: Path
) -> None:
    topology = TOPOLOGY.replace('"{{ each.value }}"', '"{{ shared_volumes.x.id[:0] }}"')
    (project / "topology.yaml").write_text(topology + f"shared_volumes:\n  x: {declare_volume()}\n")
    (project / "pool.yaml").write_text(POOL.replace("label: {}", "label: {min_length: 3}"))
    ran = modular_stack("up", "--yes", "--skip-preview")
    assert ran.code == 1
    assert "topology.yaml:7:44: modules.team." in ran.out
    assert '.with.label: "" is shorter than 3' in ran.out


def test_convert_writes_modules_into_a_program(modular_stack: Run, project: Path) -> None:
    run_successfully(modular_stack, "up", "--yes", "--skip-preview")
    run_successfully(modular_stack, "convert")
    program = (project / "__main__.py").read_text()
    assert 'Module(\n        f"team-{key}",\n        "pool.yaml",' in program
    (project / "topology.yaml").unlink()
    run_successfully(modular_stack, "preview", "--expect-no-changes")
    refused = modular_stack("convert", "--from", "state", "--out", "-")
    assert refused.code == 1
    assert "team-a is an instance of a module; the module's file is unknown here" in refused.err


def test_fmt_formats_modules(modular_stack: Run, project: Path) -> None:
    (project / "pool.yaml").write_text(POOL.replace("\noutputs", "\n\n\n\noutputs"))
    assert run_successfully(modular_stack, "fmt") == "pool.yaml\n"


def test_import_refuses_to_add_entries_to_modules(modular_stack: Run, project: Path) -> None:
    run_successfully(modular_stack, "up", "--yes", "--skip-preview")
    refused = modular_stack(
        "import", "--all", "--platform", "together", "--out", "pool.yaml", "--preview-only"
    )
    assert refused.code == 1
    assert "pool.yaml is not part of topology.yaml" in refused.err
    assert "adds no entries to modules" in refused.err


def test_an_aliased_entry_moves_into_a_module_without_changes(
    modular_stack: Run, project: Path
) -> None:
    (project / "topology.yaml").write_text(f"shared_volumes:\n  old: {declare_volume()}\n")
    run_successfully(modular_stack, "up", "--yes", "--skip-preview")
    aliased = declare_volume(options="{aliases: [{name: old, parent: null}]}")
    (project / "pool.yaml").write_text(f"inputs: {{}}\nshared_volumes:\n  data: {aliased}\n")
    (project / "topology.yaml").write_text("include: {file: pool.yaml, name: team}\n")
    output = run_successfully(modular_stack, "up", "--yes")
    assert "1 to create" in output, "the module's component"
    run_successfully(modular_stack, "preview", "--expect-no-changes")
    assert "::team-data " in run_successfully(modular_stack, "state", "list")
