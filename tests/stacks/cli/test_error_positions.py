"""Errors of programs and of the engine say where the resource is declared, and show the line."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from support.stacks.planned_project import PlannedProject
from support.topologies.declarations import CLUSTER
from support.topologies.topology_planner import declare_cluster, declare_volume

Run = Any
PROGRAM = """\
import pulumi
from gpuform.providers.together import Cluster, SharedVolume


def volume(name, region):
    return SharedVolume(
        name,
        volume_name=name,
        region=region,
        size_tib=2.5,
    )


data = volume("data", "us-central-8")
"""


def get_diagnostics(output: str) -> str:
    """Return the text under `Diagnostics:`."""
    return output.partition("Diagnostics:\n")[2].partition("\n\n")[0]


def test_a_wrong_argument_is_shown_at_its_line_of_the_program(
    planned_project: PlannedProject, project: Path
) -> None:
    (project / "__main__.py").write_text(PROGRAM)
    ran = planned_project.run("preview")
    assert ran.code == 1
    assert get_diagnostics(ran.out) == (
        "  together:SharedVolume (data):\n"
        "    error: pulumi-python:dynamic/gpuform.together:SharedVolume resource 'data': property "
        "size_tib value 2.5 has a problem: must be a whole number, not 2.5\n"
        "      at __main__.py:10:18\n"
        "      10 |         size_tib=2.5,\n"
        "         |                  ^^^"
    )


def test_a_missing_argument_is_shown_at_the_call(
    planned_project: PlannedProject, project: Path
) -> None:
    program = PROGRAM.replace("        size_tib=2.5,\n", "")
    (project / "__main__.py").write_text(program)
    ran = planned_project.run("preview")
    assert "      at __main__.py:6:12\n" in ran.out
    assert "      6 |     return SharedVolume(\n        |            ^^^^^^^^^^^^" in ran.out


def test_a_wrong_quoted_value_is_shown_at_its_line_of_the_topology(
    planned_project: PlannedProject, project: Path
) -> None:
    """The preview asks the platform, which `validate` does not."""
    (project / "__main__.py").unlink()
    (project / "topology.yaml").write_text(
        "shared_volumes:\n"
        "  data:\n"
        "    platform: together\n"
        "    volume_name: data\n"
        "    region: 'us-centrl-8'\n"
        "    size_tib: 2\n"
    )
    ran = planned_project.run("preview")
    assert 'property region value "us-centrl-8" has a problem' in ran.out
    assert "did you mean us-central-8?" in ran.out
    assert (
        "      at topology.yaml:5:13\n"
        "      5 |     region: 'us-centrl-8'\n"
        "        |             ^^^^^^^^^^^^^"
    ) in ran.out


def test_an_error_in_a_module_names_both_files(
    planned_project: PlannedProject, project: Path
) -> None:
    (project / "__main__.py").unlink()
    entry = declare_volume(region="'{{ inputs.region }}'")
    (project / "pool.yaml").write_text(
        f"inputs: {{region: {{}}}}\nshared_volumes:\n  data: {entry}"
    )
    (project / "topology.yaml").write_text(
        "include: {file: pool.yaml, name: a, with: {region: us-centrl-8}}\n"
    )
    ran = planned_project.run("preview")
    assert "      at pool.yaml:3:" in ran.out
    assert ", included at topology.yaml:1\n" in ran.out
    assert "^^^^^^^^^^^^^^^^^^^^^" in ran.out


def test_a_broken_rule_over_two_resources_is_shown_at_the_argument(
    planned_project: PlannedProject, project: Path
) -> None:
    program = PROGRAM.replace("2.5", "2").replace(
        "import SharedVolume", "import Cluster, SharedVolume"
    )
    values = {**CLUSTER, "region": "us-central-4"}
    arguments = ", ".join(f"{key}={value!r}" for key, value in values.items())
    program += f"Cluster(\n    'train',\n    {arguments},\n    volume_id=data.id,\n)\n"
    (project / "__main__.py").write_text(program)
    ran = planned_project.run("preview")
    assert "shared volume 'data' is in us-central-8, the cluster in us-central-4" in ran.out
    assert "      at __main__.py:18:15\n      18 |     volume_id=data.id,\n" in ran.out
    assert "         |               ^^^^^^^\n" in ran.out


def test_a_failed_create_is_shown_at_the_declaration(
    planned_project: PlannedProject, project: Path
) -> None:
    (project / "__main__.py").unlink()
    entries = f"  one: {declare_cluster()}\n  two: {declare_cluster()}\n"
    (project / "topology.yaml").write_text(f"clusters:\n{entries}")
    rule = {"method": "POST", "path": "clusters", "capacity": True}
    httpx.post(
        f"{planned_project.url}/_emulator/faults", json=rule, trust_env=False, verify=False
    ).raise_for_status()
    ran = planned_project.run("up", "--yes", "--skip-preview")
    assert ran.code == 1
    assert "      at topology.yaml:2:3\n" in ran.out or "      at topology.yaml:3:3\n" in ran.out
    assert "|   ^^^\n" in ran.out


@pytest.mark.parametrize("form", ["yaml", "python"])
def test_a_line_with_a_secret_is_not_shown(
    planned_project: PlannedProject, project: Path, form: str
) -> None:
    values = {"platform": "scp", "region_id": "kr-west1", "os_user_password": "Hunter2Hunter2!"}
    (project / "__main__.py").unlink()
    if form == "yaml":
        properties = ", ".join(f"{key}: {value}" for key, value in values.items())
        (project / "topology.yaml").write_text(f"node_pools:\n  pool: {{{properties}}}\n")
        ran = planned_project.run("validate")
    else:
        arguments = 'os_user_password="Hunter2Hunter2!", region_id="kr-west9"'
        (project / "__main__.py").write_text(
            f'from gpuform.providers.scp import NodePool\nNodePool("pool", {arguments})\n'
        )
        ran = planned_project.run("preview")
        assert "      at __main__.py:2:" in ran.out
    assert ran.code == 1
    assert "Hunter2" not in ran.out + ran.err


def test_a_declaration_in_loaded_code_is_shown_at_the_caller(
    planned_project: PlannedProject, project: Path
) -> None:
    """A resource that is declared in loaded code has no line that can be shown."""
    (project / "__main__.py").write_text(
        "code = " + repr(PROGRAM) + "\nexec(compile(code, __file__ + '.gone', 'exec'))\n"
    )
    ran = planned_project.run("preview")
    assert "must be a whole number, not 2.5\n      at __main__.py" in ran.out


def test_an_unclosed_quote_is_reported_where_it_opens(run: Run, project: Path) -> None:
    (project / "__main__.py").unlink()
    (project / "topology.yaml").write_text(
        'config:\n  a: {default: "x}\n  b: {default: "y"}\noutputs: {c: 1}\n'
    )
    ran = run("validate")
    assert ran.out == (
        "topology.yaml:2:16: this is not YAML: the quote that opens here is closed only in "
        "line 3, by a quote that probably opens another string\n  close the quote, or "
        "remove it\n"
    )


def test_an_error_in_an_expression_is_reported_at_its_position(run: Run, project: Path) -> None:
    (project / "__main__.py").unlink()
    (project / "topology.yaml").write_text(
        "config: {gpus: {type: integer}}\n"
        "outputs:\n"
        "  a: \"{{ config.gpus }} of {{ config['gpu'] }}\"\n"
        "  d: '{{ config.gpus }} of {{ config.gpu }}'\n"
        "  b: 'x {{ config.gpus + }}'\n"
        "  c: >-\n"
        "    a text\n"
        "    {{ pulumi.stakc }}\n"
    )
    ran = run("validate")
    assert [line for line in ran.out.splitlines() if not line.startswith(" ")] == [
        "topology.yaml:3:31: config.gpu does not exist",
        "topology.yaml:4:31: config.gpu does not exist",
        "topology.yaml:5:9: this is not an expression: it ends too early",
        "topology.yaml:8:8: pulumi.stakc does not exist",
    ]
