"""A stack belongs to one environment: others are refused before any request or change."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from support.stacks.planned_project import PlannedProject

from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.environment import StackEnvironment, read_environment, record_environment
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.store import Backend

Run = Any

COMMANDS = (
    ("preview",),
    ("up", "--yes"),
    ("up", "--yes", "--skip-preview"),
    ("refresh", "--yes"),
    ("refresh", "--yes", "--skip-preview"),
    ("destroy", "--yes"),
    ("destroy", "--yes", "--skip-preview"),
    ("expire", "--yes"),
    ("drift",),
    ("import", "together:SharedVolume", "data2", "vol-1", "--yes"),
    ("status", "--refresh"),
    ("kubeconfig",),
    ("convert", "--from", "program", "--to", "yaml"),
)


def set_environment(
    planned_project: PlannedProject, environment: StackEnvironment | None, stack: str = "dev"
) -> None:
    records = open_intents(
        Backend.open(f"file://{planned_project.project}", {}), "demo", stack
    ).records
    if environment is None:
        records.delete("world")
    else:
        record_environment(records, environment)


def get_emulator_id(url: str) -> str:
    with urlopen(f"{url}/_emulator/clock") as answer:
        return str(json.load(answer)["emulator"])


def get_environment(planned_project: PlannedProject, stack: str = "dev") -> StackEnvironment | None:
    backend = Backend.open(f"file://{planned_project.project}", {})
    return read_environment(open_intents(backend, "demo", stack).records)


@pytest.fixture
def real_stack(applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch) -> PlannedProject:
    """Return a stack whose platform counts as real: no process follows the emulator's clock."""
    set_environment(applied_project, None)
    monkeypatch.delenv("GPUFORM_CLOCK")
    assert applied_project.run("refresh", "--yes").code == 0
    return applied_project


@pytest.fixture
def other_emulator_url() -> Iterator[str]:
    with serve() as server:
        yield server.url


def expect_refusals(
    planned_project: PlannedProject, *flags: str, messages: tuple[str, ...]
) -> None:
    before = planned_project.state_file, planned_project.sent_changes
    for command in COMMANDS:
        ran = planned_project.run(*command, *flags)
        assert ran.code not in (0, 2), command
        assert all(message in ran.err for message in messages), (command, ran.err)
        assert (planned_project.state_file, planned_project.sent_changes) == before, command


@pytest.mark.slow
def test_a_real_stack_is_refused_with_emulate(real_stack: PlannedProject) -> None:
    why = "the stack lives on real platforms, and this run would use the emulator"
    expect_refusals(real_stack, "--emulate", messages=(why, "gpuform stack init NAME --emulate"))


@pytest.mark.slow
def test_an_emulated_stack_is_refused_on_real_platforms(
    applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUFORM_CLOCK")
    why = "the stack lives on the emulator, and this run would use real platforms"
    expect_refusals(applied_project, messages=(why, "add --emulate"))


@pytest.mark.slow
def test_a_stack_of_one_emulator_is_refused_on_another(
    applied_project: PlannedProject, other_emulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = get_emulator_id(applied_project.url)
    for name, value in environment(other_emulator_url).items():
        monkeypatch.setenv(name, value)
    theirs = get_emulator_id(other_emulator_url)
    why = f"lives on emulator {ours}, but this run would use another emulator: {theirs}"
    expect_refusals(applied_project, messages=(why, "gpuform emulator start"))


@pytest.mark.slow
def test_a_stack_of_one_emulator_is_refused_on_the_projects_emulator(
    applied_project: PlannedProject,
) -> None:
    before = applied_project.state_file
    ran = applied_project.run("destroy", "--yes", "--emulate")
    assert ran.code == 1
    assert "this run would use another emulator" in ran.err
    assert applied_project.state_file == before


def test_an_emulator_that_is_not_the_expected_one_is_refused(
    planned_project: PlannedProject, other_emulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another emulator took the port after the variables were set."""
    monkeypatch.setenv("GPUFORM_EMULATOR", get_emulator_id(other_emulator_url))
    ran = planned_project.run("up", "--yes")
    assert ran.code == 1
    url = planned_project.url
    message = f"the emulator at {url} is {get_emulator_id(url)}, but GPUFORM_EMULATOR names"
    assert message in ran.err + ran.out
    assert [change for change in planned_project.sent_changes if "_emulator" not in change] == []


@pytest.mark.slow
def test_a_stack_without_a_recorded_emulator_records_the_first_one_and_says_so(
    applied_project: PlannedProject,
) -> None:
    set_environment(applied_project, StackEnvironment(True))
    ran = applied_project.run("refresh", "--yes")
    assert ran.code == 0
    message = f"from now on the emulator is {get_emulator_id(applied_project.url)}"
    assert message in ran.out + ran.err
    assert get_environment(applied_project) == StackEnvironment(
        True, emulator=get_emulator_id(applied_project.url)
    )
    assert message not in (again := applied_project.run("refresh", "--yes")).out + again.err


@pytest.mark.slow
def test_a_new_stack_records_its_first_emulator_silently(
    planned_project: PlannedProject,
) -> None:
    assert planned_project.run("stack", "init", "trial", "--emulate").code == 0
    ran = planned_project.run("up", "--yes")
    assert ran.code == 0
    assert "does not record its emulator" not in ran.out + ran.err
    assert get_environment(planned_project, "trial") == StackEnvironment(
        True, emulator=get_emulator_id(planned_project.url)
    )


@pytest.mark.slow
def test_a_platform_at_another_address_is_refused(
    real_stack: PlannedProject, other_emulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOGETHER_BASE_URL", f"{other_emulator_url}/together")
    why = (
        f"are at {real_stack.url}/together/v1,"
        f" but requests to together would go to {other_emulator_url}"
    )
    expect_refusals(real_stack, messages=(why, "--allow new-address"))


@pytest.mark.slow
def test_a_real_stack_refuses_the_clock_of_an_emulator(
    real_stack: PlannedProject, other_emulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFORM_CLOCK", other_emulator_url)
    why = f"real platforms, and GPUFORM_CLOCK names an emulator's clock at {other_emulator_url}"
    expect_refusals(real_stack, messages=(why, "unset GPUFORM_CLOCK"))


@pytest.mark.slow
def test_a_real_ttl_ignores_the_clock_of_an_emulator(
    real_stack: PlannedProject, other_emulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell still has the variable of an emulator, whose clock is 30 days ahead."""
    program = real_stack.project / "__main__.py"
    program.write_text(program.read_text().replace("cluster_name=", 'ttl="14d", cluster_name='))
    assert real_stack.run("up", "--yes").code == 0
    with urlopen(Request(f"{other_emulator_url}/_emulator/clock", b'{"advance": 2592000}')):
        monkeypatch.setenv("GPUFORM_CLOCK", other_emulator_url)
    before = real_stack.state_file, real_stack.sent_changes
    assert real_stack.run("expire", "--yes").code == 1
    assert (real_stack.state_file, real_stack.sent_changes) == before


@pytest.mark.slow
def test_a_new_stack_on_real_platforms_refuses_the_clock_of_an_emulator(
    planned_project: PlannedProject, other_emulator_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFORM_CLOCK", other_emulator_url)
    ran = planned_project.run("up", "--yes")
    assert ran.code == 1
    assert f"GPUFORM_CLOCK names an emulator's clock at {other_emulator_url}" in ran.err
    assert planned_project.sent_changes == []


@pytest.mark.slow
def test_an_allowed_new_address_is_recorded(
    real_stack: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another name of the same machine is another address."""
    moved = real_stack.url.replace("127.0.0.1", "localhost")
    monkeypatch.setenv("TOGETHER_BASE_URL", f"{moved}/together")
    assert real_stack.run("up", "--yes", "--allow", "new-address").code == 0
    assert get_environment(real_stack) == StackEnvironment(
        False, {"together": f"{moved}/together/v1"}
    )
    assert real_stack.run("refresh", "--yes").code == 0


@pytest.mark.slow
def test_a_state_of_unknown_environment_is_refused_with_emulate(real_stack: PlannedProject) -> None:
    set_environment(real_stack, None)
    before = real_stack.state_file
    ran = real_stack.run("destroy", "--yes", "--emulate")
    assert ran.code == 1
    assert (
        "this run would use the emulator, but it is unknown whether the resources of stack dev "
        "are there"
    ) in ran.err
    assert real_stack.state_file == before


@pytest.mark.slow
def test_stack_init_emulate_creates_an_emulated_stack(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUFORM_CLOCK")
    ran = planned_project.run("stack", "init", "trial", "--emulate")
    assert (ran.code, ran.out) == (0, "Created and selected stack trial on the emulator.\n")
    refused = planned_project.run("up", "--yes")
    assert "the stack lives on the emulator" in refused.err
    assert planned_project.sent_changes == []
    assert planned_project.run("up", "--yes", "--emulate").code == 0


def test_a_preview_records_no_environment(planned_project: PlannedProject) -> None:
    """A stack that was only previewed on the emulator may still become a real stack."""
    assert planned_project.run("preview").code == 0
    assert get_environment(planned_project) is None


def test_the_environment_moves_with_a_renamed_stack(applied_project: PlannedProject) -> None:
    assert applied_project.run("stack", "rename", "prod").code == 0
    assert get_environment(applied_project, "prod") == StackEnvironment(
        True, emulator=get_emulator_id(applied_project.url)
    )
    assert get_environment(applied_project) is None


@pytest.mark.slow
def test_a_removed_stack_leaves_no_environment(applied_project: PlannedProject) -> None:
    assert applied_project.run("destroy", "--yes", "--skip-preview").code == 0
    assert applied_project.run("stack", "rm", "dev", "--yes").code == 0
    assert applied_project.run("stack", "init", "dev").code == 0
    assert get_environment(applied_project) is None


@pytest.mark.slow
def test_resources_cannot_move_to_another_environment(applied_project: PlannedProject) -> None:
    assert applied_project.run("stack", "init", "prod").code == 0
    set_environment(
        applied_project, StackEnvironment(False, {"together": "https://api.together.ai/v1"}), "prod"
    )
    before = applied_project.state_file
    moved = applied_project.run(
        "state", "move", "--source", "dev", "--dest", "prod", "data", "--yes"
    )
    assert moved.code == 1, moved.out
    assert "one stack's resources are on the emulator" in moved.err
    assert applied_project.state_file == before


@pytest.mark.slow
def test_every_output_of_an_emulated_stack_says_so(applied_project: PlannedProject) -> None:
    assert "Previewing update (dev, emulated):" in applied_project.run("preview").out
    assert "Updating (dev, emulated):" in applied_project.run("up", "--yes").out
    assert (
        "Stack dev lives on the emulator: its resources are not real."
        in applied_project.run("status").out
    )
    assert applied_project.run("status", "--json").json["emulated"] is True
    applied_project.save_plan()
    assert applied_project.plan_document["emulated"] is True
    for form in ("text", "markdown", "github", "html"):
        assert (
            "demo/dev (emulated)"
            in applied_project.run("review", "plan.json", "--format", form).out
        )
    assert "demo/dev (emulated)" in applied_project.run("drift").out


@pytest.mark.slow
def test_the_state_of_an_emulated_stack_is_shown_without_a_flag(
    applied_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUFORM_CLOCK")
    ran = applied_project.run("status")
    assert ran.code == 0, ran.err
    assert "Stack dev lives on the emulator: its resources are not real." in ran.out
    assert "the stack lives on the emulator" in applied_project.run("status", "--refresh").err


@pytest.mark.slow
def test_output_of_a_real_stack_does_not_mention_emulation(real_stack: PlannedProject) -> None:
    for command in ("preview", "status", "drift"):
        ran = real_stack.run(command)
        assert ran.code == 0
        assert "emulat" not in ran.out + ran.err


def test_a_damaged_environment_record_is_an_error(applied_project: PlannedProject) -> None:
    open_intents(
        Backend.open(f"file://{applied_project.project}", {}), "demo", "dev"
    ).records.write("world", {"nonsense": 1})
    ran = applied_project.run("preview")
    assert ran.code == 1
    assert "world is damaged" in ran.err
    assert json.loads(applied_project.state_file)["checkpoint"]


@pytest.mark.slow
def test_projects_of_a_folder_share_emulated_objects(dev: Run, project: Path) -> None:
    assert dev("emulator", "share", str(project.parent)).code == 0
    assert dev("up", "--emulate", "--yes", "--skip-preview").code == 0
    other = project.parent / "other"
    other.mkdir()
    (other / "Pulumi.yaml").write_text(
        f"name: other\nruntime: python\nbackend: {{url: 'file://{project}'}}\n"
    )
    (other / "__main__.py").write_text(
        "import pulumi\n"
        "from gpuform.providers.together import SharedVolume\n"
        "ids = pulumi.Config().require('volume')\n"
        "volume = SharedVolume.get('data', ids)\n"
        "pulumi.export('name', volume.volume_name)\n"
    )
    resources = dev("stack", "export").json["deployment"]["resources"]
    (volume,) = [r["id"] for r in resources if r["type"].endswith("SharedVolume")]
    at_other = ("--cwd", str(other))
    assert dev(*at_other, "stack", "init", "dev", "--emulate").code == 0
    assert dev(*at_other, "config", "set", "volume", volume).code == 0
    ran = dev(*at_other, "up", "--emulate", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    assert 'name: "training-data"' in ran.out
    assert not (other / ".gpuform/emulator.db").exists()
