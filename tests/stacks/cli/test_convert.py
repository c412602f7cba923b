"""`gpuform convert` as a person runs it: plans stay empty, in every direction."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

from gpuform.providers.emulator.server import environment, serve

Run = Callable[..., Any]
EXAMPLES = Path(__file__).parents[3] / "examples"
FIRST = "01-together-training"
OTHERS = sorted(path.parent.name for path in EXAMPLES.glob("*/python"))[1:]


@pytest.fixture
def create_example(
    dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Run]]:
    """Return a function that creates the stack of an example in this project."""
    with serve(seed="examples") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)

        def make(name: str) -> Run:
            (project / "__main__.py").unlink()
            shutil.copy(EXAMPLES / name / "topology.yaml", project)
            ran = dev("up", "--yes", "--skip-preview")
            assert ran.code == 0, ran.err + ran.out
            return dev

        yield make


def expect_no_changes(run: Run) -> None:
    """Assert that a preview has no changes."""
    ran = run("preview", "--expect-no-changes")
    assert ran.code == 0, ran.out + ran.err


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name", [FIRST, *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)]
)
def test_converted_examples_plan_no_changes_in_every_direction(
    create_example: Callable[[str], Run], project: Path, name: str
) -> None:
    run = create_example(name)
    converted = run("convert")
    assert (converted.code, converted.err) == (0, "")
    assert converted.out == (
        "Wrote __main__.py.\ngpuform runs __main__.py, not topology.yaml: the program must "
        "load the topology itself.\n"
    )
    (project / "topology.yaml").unlink()
    expect_no_changes(run)
    for source, form in [("program", "yaml"), ("state", "yaml"), ("state", "python")]:
        for path in (project / "topology.yaml", project / "made.py"):
            path.unlink(missing_ok=True)
        ran = run("convert", "--from", source, "--to", form, "--set-secrets", "--out", "made")
        assert ran.code == 0, ran.err
        if form == "yaml":
            (project / "__main__.py").rename(project / "old.py")
            (project / "made").rename(project / "topology.yaml")
        else:
            (project / "made").rename(project / "__main__.py")
        expect_no_changes(run)
        if form == "yaml":
            (project / "old.py").rename(project / "__main__.py")


@pytest.mark.slow
@pytest.mark.parametrize("name", [FIRST, *OTHERS])
def test_example_programs_convert_to_equivalent_topologies(
    create_example: Callable[[str], Run], project: Path, name: str
) -> None:
    run = create_example(name)
    shutil.copy(EXAMPLES / name / "python" / "__main__.py", project)
    ran = run("convert", "--from", "program", "--set-secrets", "--force")
    assert ran.code == 0, ran.err
    (project / "__main__.py").unlink()
    expect_no_changes(run)


def test_convert_overwrites_files_only_with_force(applied_project: PlannedProject) -> None:
    before = Path("__main__.py").read_text()
    refused = applied_project.run("convert", "--from", "state", "--to", "python")
    assert (refused.code, refused.out) == (1, "")
    assert "__main__.py exists; nothing was written" in refused.err
    assert Path("__main__.py").read_text() == before
    assert applied_project.run("convert", "--from", "state", "--out", "new/it.yaml").code == 0
    assert Path("new/it.yaml").read_text().startswith("config:\n  place_token: {secret")
    assert applied_project.run("convert", "--from", "state", "--to", "python", "--force").code == 0
    assert Path("__main__.py").read_text() != before
    assert applied_project.run("config", "set", "--secret", "place_token", "hunter2").code == 0
    expect_no_changes(applied_project.run)


@pytest.mark.slow
def test_convert_writes_references_instead_of_secrets(
    applied_project: PlannedProject, project: Path
) -> None:
    """The program exports a token that the configuration does not have."""
    ran = applied_project.run("convert", "--from", "state")
    assert ran.code == 0, ran.err
    assert "gpuform config set --secret place_token\n" in ran.err
    assert "hunter2" not in ran.out + ran.err + (project / "topology.yaml").read_text()
    assert 'token: "{{ config.place_token }}"' in (project / "topology.yaml").read_text()
    stored = applied_project.run("convert", "--from", "state", "--force", "--set-secrets")
    assert "Stored 1 secret value in Pulumi.dev.yaml." in stored.out
    assert "hunter2" not in (project / "Pulumi.dev.yaml").read_text()
    (project / "__main__.py").unlink()
    expect_no_changes(applied_project.run)
    assert applied_project.run("config", "get", "place_token").out == "hunter2\n"


@pytest.mark.slow
def test_convert_refers_to_a_secret_the_configuration_already_has(
    applied_project: PlannedProject, project: Path
) -> None:
    assert applied_project.run("config", "set", "--secret", "pass", "hunter2").code == 0
    ran = applied_project.run("convert", "--from", "state")
    assert (ran.code, ran.err) == (0, "")
    assert "config:\n  pass: {secret: true}\n" in (project / "topology.yaml").read_text()


COMPUTED = """
import pulumi
from gpuform.providers.together import Cluster, SharedVolume

config = pulumi.Config()
data = SharedVolume("data", volume_name="training-data", region="us-central-8", size_tib=5)
train = Cluster(
    "train",
    cluster_name=data.id.apply(lambda text: text[:4]),
    region=data.region,
    gpu_type="H100_SXM",
    num_gpus=data.size_tib.apply(lambda size: 16 if size > 2 else 8),
    driver_version="CUDA_12_6_560",
    billing_type="ON_DEMAND",
    volume_id=data.id,
    opts=pulumi.ResourceOptions(protect=True, custom_timeouts=pulumi.CustomTimeouts(create="90m")),
)
pulumi.export("length", data.id.apply(len))
pulumi.export("text", pulumi.Output.concat("a ", train.id, " on ", data.status))
pulumi.export("key", config.require_secret("key"))
"""


def test_convert_refuses_computed_values_with_their_lines(dev: Run, project: Path) -> None:
    (project / "__main__.py").write_text(COMPUTED)
    dev("config", "set", "--secret", "key", "s3cr3t-k3y")
    ran = dev("convert", "--from", "program")
    assert (ran.code, ran.out) == (1, "")
    assert "the source cannot be converted; nothing was written" in ran.err
    assert "__main__.py:7:1: train.cluster_name is computed from outputs" in ran.err
    assert "__main__.py:7:1: train.num_gpus is computed from outputs of data" in ran.err
    assert "the output length is computed from outputs" in ran.err
    assert not (project / "topology.yaml").exists()

    computed = ("cluster_name", "num_gpus", "length")
    lines = [
        line
        for line in COMPUTED.splitlines()
        if not any(expression in line for expression in computed)
    ]
    (project / "__main__.py").write_text("\n".join(lines))
    ran = dev("convert", "--from", "program", "--out", "-")
    assert ran.code == 0, ran.err
    assert "s3cr3t" not in ran.out + ran.err
    assert 'region: "{{ shared_volumes.data.region }}"\n' in ran.out
    assert 'volume: "{{ shared_volumes.data }}"\n' in ran.out
    assert "options: {protect: true, timeouts: {create: 1h30m}}" in ran.out
    assert 'text: "a {{ clusters.train.id }} on {{ shared_volumes.data.status }}"' in ran.out
    assert 'key: "{{ config.key }}"\n' in ran.out


REFUSED = {
    "Part::p: p is a my:Part: topologies have no section for it": (
        'class Part(pulumi.ComponentResource):\n    pass\nPart("my:Part", "p")\n'
    ),
    "__main__.py:3:1: 'a b' is not a valid name for an entry": (
        "SharedVolume('a b', volume_name='d', region='us-central-8', size_tib=5)\n"
    ),
    "__main__.py:6:1: two resources would have the address clusters.n": (
        "from gpuform.providers.aios import Cluster as Record\n"
        "SharedVolume('n', volume_name='d', region='us-central-8', size_tib=5)\n"
        "Record('n', cluster_id='c')\nCluster('n', cluster_name='c')\n"
    ),
    "ValueError: no": "raise ValueError('no')\n",
}


@pytest.mark.parametrize("expected", REFUSED)
def test_convert_refuses_what_topologies_cannot_express(
    dev: Run, project: Path, expected: str
) -> None:
    head = "import pulumi\nfrom gpuform.providers.together import Cluster, SharedVolume\n"
    (project / "__main__.py").write_text(head + REFUSED[expected])
    ran = dev("convert", "--from", "program")
    assert (ran.code, ran.out) == (1, "")
    assert expected in ran.err
    assert not (project / "topology.yaml").exists()


def test_convert_fails_if_there_is_nothing_to_convert(dev: Run, project: Path) -> None:
    ran = dev("convert", "--from", "state")
    assert (ran.code, ran.out) == (1, "")
    assert "the state contains nothing to convert; nothing was written" in ran.err
    (project / "__main__.py").write_text("import pulumi\n")
    ran = dev("convert", "--from", "program")
    assert ran.code == 1
    assert "the program contains nothing to convert" in ran.err
    assert dev("convert", "--from", "state", "--stack", "none").code == 6


def test_convert_refuses_an_invalid_topology(dev: Run, project: Path) -> None:
    (project / "topology.yaml").write_text("clusters:\n  train:\n    platform: nowhere\n")
    ran = dev("convert", "--out", "new.py")
    assert ran.code == 1
    assert "topology.yaml:3:15: nowhere is not a platform" in ran.err
    assert not (project / "new.py").exists()
    assert dev("convert", "--to", "yaml", "--out", "new.yaml").code == 2
    assert dev("convert", "x.yaml", "--from", "state", "--out", "new.yaml").code == 2
    assert dev("convert", "no.yaml", "--out", "new.py").code == 1
