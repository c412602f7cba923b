"""`gpuform console`: expressions against the stack, with its secrets kept."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject
from support.topologies.topology_planner import declare_cluster, declare_volume

Run = Any
TOPOLOGY = f"""config:
  gpus: {{type: integer, default: 16}}
  token: {{secret: true, default: hunter2}}
include: {{file: pool.yaml, name: pool, with: {{label: pool}}}}
clusters:
  train: {declare_cluster(num_gpus="'{{ config.gpus }}'", volume="'{{ modules.pool.volume }}'")}
  later: {declare_cluster(cluster_name="later", for_each="[a]")}
"""
POOL = f"""inputs: {{label: {{}}}}
shared_volumes:
  data: {declare_volume(volume_name="'{{ inputs.label }}'")}
outputs: {{volume: "{{{{ shared_volumes.data }}}}"}}
"""


@pytest.fixture
def console_stack(planned_project: PlannedProject, project: Path) -> Run:
    """Create a stack with a cluster and a module, and declare one more cluster."""
    (project / "__main__.py").unlink()
    (project / "pool.yaml").write_text(POOL)
    (project / "topology.yaml").write_text(TOPOLOGY.rpartition("  later")[0])
    ran = planned_project.run("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.err
    (project / "topology.yaml").write_text(TOPOLOGY)
    return planned_project.run


COMPLETIONS = {
    "clus": "clusters",
    "clusters.t": "clusters.train",
    "clusters.train.kube_c": "clusters.train.kube_config",
    "modules.pool.": "modules.pool.volume",
    "clusters.la": "clusters.later",
}


def evaluate(run: Run, *expressions: str) -> list[str]:
    ran = run("console", *(part for expression in expressions for part in ("-e", expression)))
    assert ran.code == 0, ran.err
    return ran.out.splitlines()


@pytest.mark.slow
def test_console_evaluates_resources_configuration_and_modules(console_stack: Run) -> None:
    assert evaluate(
        console_stack,
        *("clusters.train.status", "{{ config.gpus // 8 }} nodes", "clusters.train.num_gpus * 2"),
        *("pulumi.stack", "clusters.train.volume_id == modules.pool.volume"),
        *("shared_volumes['pool-data'].volume_name", "clusters.later.a.id"),
    ) == ['"Ready"', '"2 nodes"', "32", '"dev"', "true", '"pool"', "[unknown]"]


def test_console_masks_secrets_unless_show_secrets(console_stack: Run) -> None:
    secret = ("config.token", "'x' ~ config.token", "clusters.train.kube_config | length")
    assert evaluate(console_stack, *secret) == ["[secret]"] * 3
    ran = console_stack("console", "--show-secrets", "-e", "config.token ~ '!'")
    assert ran.out == '"hunter2!"\n'
    failed = console_stack("console", "-e", "config.token | int")
    assert failed.code == 1
    assert "hunter2" not in failed.out + failed.err
    assert "the expression cannot be evaluated with the values of its references" in failed.err


def test_console_evaluates_each_line_of_stdin(console_stack: Run) -> None:
    ran = console_stack("console", answers="config.gpus\n\nclusters.trian.id\n[1, none]\n")
    assert (ran.code, ran.out) == (1, "16\n[\n  1,\n  null\n]\n")
    assert ran.err.startswith("error: clusters.trian does not exist\n")
    assert "did you mean clusters.train?" in ran.err


@pytest.mark.slow
def test_console_refuses_what_topology_expressions_refuse(console_stack: Run) -> None:
    wrong = {
        "'a' * 99999999": "the expression takes too many steps, or its result is too large",
        "''.__class__": "a text has no '__class__'",
        "{% if a %}": "not statements",
        "nothing": "nothing does not exist",
        "config.gpus.x": "a number has no 'x'",
    }
    ran = console_stack("console", answers="\n".join(wrong))
    assert (ran.code, ran.out) == (1, "")
    errors = ran.err.split("error: ")[1:]
    assert [message in error for message, error in zip(wrong.values(), errors, strict=True)] == [
        True
    ] * 5


def test_console_lookups_ask_the_platform(console_stack: Run) -> None:
    (image_name,) = evaluate(console_stack, "(scp.images('kr-west1') | first).name")
    assert json.loads(image_name)


def test_console_lookups_accept_a_filter(console_stack: Run) -> None:
    asked = "aios.clusters({'gpus.count': {'$gte': 2}}) | length"
    assert evaluate(console_stack, asked, asked) == ["0", "0"]


def test_console_evaluates_the_state_of_a_python_program(applied_project: PlannedProject) -> None:
    ran = applied_project.run(
        "console", "-e", "clusters.train.status", "-e", "shared_volumes.data.size_tib"
    )
    assert ran.out.splitlines() == ['"Ready"', "5"]


@pytest.mark.slow
def test_console_prompts_on_a_terminal_until_exit(
    console_stack: Run, terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = iter(["config.gpus", "nope", "config.gpus + 1", "exit"])
    monkeypatch.setattr("builtins.input", lambda _prompt: next(typed))
    ran = console_stack("console")
    assert ran.code == 0
    assert [line for line in ran.out.splitlines() if line.isdigit()] == ["16", "17"]
    assert "nope does not exist" in ran.err


def test_console_completes_names(
    console_stack: Run, terminal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    completions: dict[str, list[str]] = {}

    def ask(_prompt: str) -> str:
        import readline

        complete = readline.get_completer()
        assert complete is not None
        for begun in COMPLETIONS:
            completions[begun] = [
                completion for at in range(3) if (completion := complete(begun, at))
            ]
        raise EOFError

    monkeypatch.setattr("builtins.input", ask)
    assert console_stack("console").code == 0
    assert completions == {begun: [completion] for begun, completion in COMPLETIONS.items()}


def test_console_fails_for_an_invalid_topology(console_stack: Run, project: Path) -> None:
    (project / "topology.yaml").write_text(TOPOLOGY.replace("H100_SXM", "H100_SMX"))
    ran = console_stack("console", "-e", "1")
    assert ran.code == 1
    assert "topology.yaml:6:" in ran.err
