"""Text that reads like another tool's reference: reported with gpuform's form, unless escaped."""

import time
from pathlib import Path

import pytest
from support.topologies.topology_planner import Topologies, declare_cluster, declare_volume

from gpuform.stacks.declaration_writer.topology_yaml import render_scalar
from gpuform.stacks.expressions.values import find_foreign_references
from gpuform.stacks.lsp.sources import check_topology

TAKEN_AS_TEXT = "is the syntax of another tool: gpuform would treat it as plain text"


def declare(volume_id: str) -> str:
    return f"""
        config: {{a: {{default: x}}}}
        shared_volumes: {{data: {declare_volume()}, big-one: {declare_volume(volume_name="'b'")}}}
        clusters: {{train: {declare_cluster(volume_id=repr(volume_id))}}}
    """


@pytest.mark.parametrize(
    ("written", "suggestion"),
    [
        ("${shared_volumes.data.id}", "{{ shared_volumes.data.id }}"),
        ("${ shared_volumes.data.id }", "{{ shared_volumes.data.id }}"),
        ("${data.id}", "{{ shared_volumes.data.id }}"),
        ("${data}", "{{ shared_volumes.data }}"),
        ("${big-one.id}", "{{ shared_volumes['big-one'].id }}"),
        ("${together_shared_volume.data.id}", "{{ shared_volumes.data.id }}"),
        ("${data.together_shared_volume.data.id}", "{{ shared_volumes.data"),
        ("${var.volume}", "{{ config.volume }}"),
        ('${var["volume"]}', "{{ config.volume }}"),
        ("${module.net.id}", "{{ modules.net.id }}"),
        ("${each.key}", "{{ each.key }}"),
        ("${config.a}", "{{ config.a }}"),
        ("${pulumi.stack}", "{{ pulumi.stack }}"),
        ("${terraform.workspace}", "{{ pulumi.stack }}"),
        ("${shared_volume.other.id}", "{{ shared_volumes.other.id }}"),
        ("${random_pet.x.id}", "{{ SECTION.NAME.PROPERTY }}"),
        ('${join(",", var.ids)}', "{{ SECTION.NAME.PROPERTY }}"),
        ("#{data.id}", "{{ shared_volumes.data.id }}"),
        ("<%= shared_volumes.data.id %>", "{{ shared_volumes.data.id }}"),
        ("%{ if var.a }x%{ endif }", "{{ a if b else c }}"),
        ("a-${data.id}-b", "{{ shared_volumes.data.id }}"),
        ("${{ shared_volumes.data.id }}", "remove the $"),
        ("{{ config.a }}-${data.id}", "{{ shared_volumes.data.id }}"),
    ],
)
def test_a_reference_of_another_tool_is_a_problem_with_the_right_form(
    topologies: Topologies, written: str, suggestion: str
) -> None:
    problems = topologies(declare(written)).problems

    assert [diagnostic.rule for diagnostic in problems if TAKEN_AS_TEXT in diagnostic.message]
    first = next(diagnostic for diagnostic in problems if diagnostic.rule == "interpolation")
    assert suggestion in first.hint


OTHER_TEXTS = [
    *["vol-1", "${VOLUME}", "${VOLUME:-x.y}", "${arr[0]}", "${HOST-example.com}", "$data.id"],
    *["%{http_code}", "100%{x}", "a < b % c > d"],
]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *zip(OTHER_TEXTS, OTHER_TEXTS, strict=True),
        ("{{ '${shared_volumes.data.id}' }}", "${shared_volumes.data.id}"),
        ("{{ '$' }}{{ config.a }}", "$x"),
        ("{{ '<%= data.id %>' }}", "<%= data.id %>"),
    ],
)
def test_other_text_and_escaped_text_is_no_problem(
    topologies: Topologies, written: str, value: str
) -> None:
    result = topologies.plan_valid(declare(written))

    assert result.values("train")["volume_id"] == value


SCRIPT = """
    shared_volumes: {data: VOLUME}
    clusters:
      train:
        platform: together
        cluster_name: t
        region: us-central-8
        gpu_type: H100_SXM
        num_gpus: 8
        billing_type: ON_DEMAND
        driver_version: CUDA_12_6_560
        cluster_type: SLURM
        cluster_config:
          slurm_startup_scripts:
            worker_prolog: |
              #!/bin/bash
              echo LINE
"""


def declare_script(line: str) -> str:
    return SCRIPT.replace("VOLUME", declare_volume()).replace("LINE", line)


@pytest.mark.parametrize(
    "line", ["${HOME} ${x.y} <% a %> %{if}", "${data} ${var.x}", "${{ }}", "${PATH/a.b/c}"]
)
def test_the_variables_of_a_script_are_its_own(topologies: Topologies, line: str) -> None:
    problems = topologies(declare_script(line)).problems

    assert "syntax" not in {diagnostic.rule for diagnostic in problems}
    assert "interpolation" not in {diagnostic.rule for diagnostic in problems}


@pytest.mark.parametrize("line", ["${shared_volumes.data.id}", "${data.id}"])
def test_a_script_that_names_an_entry_is_a_problem(topologies: Topologies, line: str) -> None:
    problems = topologies(declare_script(line)).problems

    (problem,) = [diagnostic for diagnostic in problems if diagnostic.rule == "interpolation"]
    assert problem.hint.startswith("write {{ shared_volumes.data.id }};")
    assert (
        topologies.folder.joinpath("topology.yaml")
        .read_text()
        .splitlines()[problem.position.line - 1][problem.position.column - 1 :]
        .startswith("${")
    )


def test_outputs_options_and_modules_are_looked_at(topologies: Topologies) -> None:
    topologies.write("inputs: {a: {}}\noutputs: {b: '${var.a}'}", "m.yaml")

    problems = topologies(f"""
        include: [{{name: m, file: m.yaml, with: {{a: "${{data.id}}"}}}}]
        shared_volumes:
          data: {declare_volume(options="{depends_on: ['${data.id}']}")}
        outputs: {{c: "${{data.id}}"}}
    """).problems

    interpolations = [diagnostic for diagnostic in problems if diagnostic.rule == "interpolation"]
    assert len(interpolations) == 4
    assert any("write {{ inputs.a }}" in diagnostic.hint for diagnostic in interpolations)


def test_a_tag_of_cloudformation_is_told_the_right_form(topologies: Topologies) -> None:
    problems = topologies("outputs: {a: !Ref data}").problems

    assert any("{{ SECTION.NAME.PROPERTY }}" in diagnostic.hint for diagnostic in problems)


def test_an_editor_shows_the_problem(topologies: Topologies, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    topologies.write("outputs: {}")
    topology_yaml = "outputs:\n  a: ${shared_volumes.data.id}\n"

    (problems,) = check_topology(path, {path.resolve(): topology_yaml}).values()

    assert [diagnostic.rule for diagnostic in problems] == ["interpolation"]


@pytest.mark.parametrize("text", ["${a.b}", "${data}", "<% a %>", "x ${{ y }}", "plain", "${VAR}"])
def test_text_is_written_so_that_it_means_itself(topologies: Topologies, text: str) -> None:
    written = render_scalar(text)

    result = topologies.plan_valid(f"""
        shared_volumes: {{data: {declare_volume()}}}
        clusters: {{train: {declare_cluster(volume_id=written)}}}
    """)

    assert result.values("train")["volume_id"] == text


@pytest.mark.parametrize(
    "text", ["${a." + "a" * 50_000, "${a.b" * 20_000, "${f(" + ")" * 50_000, "<% " * 30_000]
)
def test_a_long_text_is_searched_in_linear_time(text: str) -> None:
    started = time.process_time()

    assert list(find_foreign_references((text,))) == []

    assert time.process_time() - started < 2
