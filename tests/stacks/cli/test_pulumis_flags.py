"""The flags and commands that Pulumi's users type."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from support.stacks.planned_project import PlannedProject
from support.stacks.pulumi_flags import find_differences

from gpuform.stacks.cli.flags import parallel_flag

Run = Callable[..., Any]


@pytest.mark.slow
def test_configuration_is_set_by_a_run(applied_project: PlannedProject) -> None:
    ran = applied_project.run("up", "--yes", "--config", "gpus=24", "-c", "type=H100_SXM")
    assert ran.code == 0, ran.err
    assert "gpus is set in Pulumi.dev.yaml" in ran.out
    assert "num_gpus: 16 => 24" in ran.out
    assert applied_project.run("config", "get", "gpus").out == "24\n"
    ran = applied_project.run("preview", "--json", "-c", "gpus=32")
    assert ran.json["changeSummary"]
    assert "gpus is set" in ran.err
    before = (applied_project.project / "Pulumi.dev.yaml").read_text()
    for flags, told in (
        (("-c", "gpus"), "as KEY=VALUE"),
        (("-c", "gpus=8", "-c", "together:apikey=x"), "did you mean together:apiKey?"),
        (("--config-path", "-c", "a[x=1"), "not a valid path of a configuration value"),
    ):
        ran = applied_project.run("up", "--yes", *flags)
        assert ran.code == (2 if told == "as KEY=VALUE" else 1), ran.err
        assert told in ran.err
    assert (applied_project.project / "Pulumi.dev.yaml").read_text() == before


def test_a_secret_given_to_a_run_is_encrypted(dev: Run, project: Path) -> None:
    file = project / "Pulumi.yaml"
    file.write_text(file.read_text() + "config:\n  token: {type: string, secret: true}\n")
    ran = dev("preview", "--emulate", "-c", "token=hunter2hunter2")
    assert "token was set, encrypted (declared in Pulumi.yaml)" in ran.out
    text = (project / "Pulumi.dev.yaml").read_text()
    assert "hunter2hunter2" not in text + ran.out + ran.err
    assert dev("config", "get", "token").out == "hunter2hunter2\n"


def test_a_part_of_a_value_by_its_path(dev: Run, project: Path) -> None:
    def kept() -> Any:
        return json.loads(dev("config", "get", "limits").out)

    for path, value in (
        ("limits.gpus[0]", "16"),
        ("limits.gpus[1]", "0x10"),
        ("limits.open", "true"),
        ('limits["a.b:c"]', "007"),
    ):
        assert dev("config", "set", "--path", path, value).code == 0
    assert kept() == {"gpus": [16, "0x10"], "open": True, "a.b:c": "007"}
    assert dev("config", "set", "--path", "--secret", "limits.key", "hunter2hunter2").code == 0
    assert "hunter2hunter2" not in (project / "Pulumi.dev.yaml").read_text()
    assert kept()["key"] == "hunter2hunter2"
    assert dev("config", "get", "--path", "limits.key").out == "hunter2hunter2\n"
    assert dev("config", "get", "--path", "limits.gpus[1]").out == "0x10\n"
    assert dev("config", "rm", "--path", "limits.gpus[0]").code == 0
    assert kept()["gpus"] == ["0x10"]
    for command, told in (
        (("set", "--path", "limits.gpus[7]", "1"), "limits.gpus[7] does not exist"),
        (("set", "--path", "limits.open.x", "1"), "limits.open is a single value"),
        (
            ("set", "--path", "fresh.secure", "x"),
            ("only key, which is reserved for encrypted values"),
        ),
        (("set", "--path", "[0]", "x"), "not a valid path of a configuration value"),
        (("set", "--path", "limits[*]", "x"), "not a valid path of a configuration value"),
        (("get", "--path", "limits.nothing"), "has no value"),
        (("rm", "--path", "limits.gpus[7]"), "is not set in Pulumi.dev.yaml"),
    ):
        ran = dev("config", *command)
        assert (ran.code, ran.out) == (1, "")
        assert told in ran.err
    assert dev("config", "rm", "--path", "limits").code == 0
    assert dev("config", "get", "limits").code == 1


@pytest.mark.slow
def test_what_is_shown_of_a_run(applied_project: PlannedProject) -> None:
    ran = applied_project.run("preview", "--show-sames", "--urns")
    assert "   train  together:Cluster  unchanged" in ran.out
    assert "urn: urn:pulumi:dev::demo::" in ran.out
    assert "unchanged\n" not in applied_project.run("preview").out.replace("2 unchanged", "")
    hidden = applied_project.run("up", "--yes")
    assert "hunter2" not in hidden.out
    assert "hunter2" in applied_project.run("up", "--yes", "--show-secrets").out
    assert "hunter2" in applied_project.run("up", "--yes", "--skip-preview", "--show-secrets").out
    assert "Outputs:" in hidden.out
    assert "Outputs:" not in applied_project.run("up", "--yes", "--suppress-outputs").out
    quiet = ("--suppress-progress", "--suppress-permalink", "--show-replacement-steps")
    ran = applied_project.run("destroy", "--yes", *quiet, "--show-full-output")
    assert ran.code == 0
    assert "train  together:Cluster  deleted" in ran.out
    assert "deleting" not in ran.out
    assert applied_project.run("preview", "--show-reads", "-m", "why").code == 0


@pytest.mark.slow
def test_a_destroyed_stack_is_removed(applied_project: PlannedProject) -> None:
    for flag, value in (
        ("--target", "train"),
        ("--exclude", "train"),
        ("--plan", "plan.json"),
        ("--save-plan", "plan.json"),
    ):
        assert applied_project.run("destroy", "--remove", "--yes", flag, value).code == 2
    ran = applied_project.run("destroy", "--remove", "--preview-only")
    assert ran.code == 0
    assert "removed" not in ran.out
    ran = applied_project.run("destroy", "--remove", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert ran.out.endswith("Removed stack dev.\n")
    assert "forgets it" not in ran.out
    assert not (applied_project.project / "Pulumi.dev.yaml").exists()
    assert applied_project.run("stack", "ls", "--json").json == []


@pytest.mark.slow
def test_a_stack_that_could_not_be_destroyed_stays(applied_project: PlannedProject) -> None:
    applied_project.edit_program(
        ("size_tib=5", "size_tib=5, opts=pulumi.ResourceOptions(protect=True)")
    )
    assert applied_project.run("up", "--yes").code == 0
    assert applied_project.run("destroy", "--remove", "--yes").code == 1
    assert applied_project.run("stack", "ls", "--json").json[0]["name"] == "dev"
    assert applied_project.run("destroy", "--exclude-protected", "--target", "train").code == 2
    ran = applied_project.run("destroy", "--exclude-protected", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert [
        each["urn"].rpartition("::")[2]
        for each in applied_project.run("state", "list", "--json").json["resources"]
    ] == ["demo-dev", "default", "data"]


def test_all_stacks_of_a_backend(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = project.parent / "other"
    other.mkdir()
    (other / "Pulumi.yaml").write_text(
        f"name: other\nruntime: python\nbackend: {{url: 'file://{project}'}}\n"
    )
    monkeypatch.chdir(other)
    assert dev("stack", "init", "prod").code == 0
    found = dev("stack", "ls", "--all", "--json").json
    assert [(each["name"], each["current"]) for each in found] == [
        ("organization/demo/dev", False),
        ("organization/other/prod", True),
    ]
    assert [each["name"] for each in dev("stack", "ls", "--json").json] == ["prod"]


def test_what_is_at_work(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "correct horse")
    found = dev("about", "--json").json
    assert found["project"] == {"name": "demo", "file": str(project / "Pulumi.yaml")}
    assert found["backend"]["url"] == f"file://{project}"
    assert found["stack"]["name"] == "dev"
    assert "PULUMI_CONFIG_PASSPHRASE" in found["environment"]["set"]
    told = dev("about")
    assert "pulumi sdk" in told.out
    assert "correct horse" not in told.out
    assert dev("about", "--stack", "nope").code == 0
    user = dev("whoami").out.strip()
    assert dev("whoami", "--verbose").out == f"User: {user}\nBackend URL: file://{project}\n"
    assert dev("whoami", "--json").json == {"user": user, "url": f"file://{project}"}
    (project / "Pulumi.yaml").write_text("name: [\n")
    assert "Pulumi.yaml" in dev("about").out
    monkeypatch.chdir(project.parent)
    (project / "Pulumi.yaml").unlink()
    assert "gpuform" in dev("about").out


def test_the_documentation_lists_every_difference() -> None:
    """Recorded from Pulumi's CLI: `pulumi COMMAND --help` of each command."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "pulumi-flags.md").read_text()
    sections = dict(each.split("\n", 1) for each in page.split("\n## ")[1:])
    lacking, _, everywhere = sections["Flags that only Pulumi has"].partition("on every command")
    own = sections["Flags that only gpuform has"]
    found = find_differences()
    for name, told_there, there_is in (
        ("Pulumi", _told(lacking), found.only_pulumi),
        ("gpuform", _told(own), found.only_gpuform),
    ):
        missing, surplus = there_is - told_there, told_there - there_is
        assert not missing | surplus, f"flags of {name} alone: add {missing}, remove {surplus}"
    assert set(re.findall(r"`([^`]+)`", everywhere)) == found.missing_global_flags
    commands = sections["Commands that only Pulumi has"]
    assert set(re.findall(r"`([^`]+)`", commands)) == found.missing_commands


def _told(table: str) -> set[tuple[str, str]]:
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    named = [[re.findall(r"`([^`]+)`", cell) for cell in row[:2]] for row in rows]
    pairs = [(flag, command) for flags, commands in named for flag in flags for command in commands]
    assert len(pairs) == len(set(pairs))
    return set(pairs)


def test_pulumis_other_names_of_commands(dev: Run) -> None:
    assert dev("stack", "list", "--json").json[0]["name"] == "dev"
    assert dev("config", "remove", "nothing").code == 1
    for command in (("pre",), ("down",), ("update",), ("stack", "remove"), ("state", "remove")):
        assert dev(*command, "--help").code == 0
    assert dev("list").code == 2


def test_a_flag_takes_true_and_false(dev: Run) -> None:
    assert dev("destroy", "--preview-only=true", "--emulate=true").code == 0
    ran = dev("destroy", "--preview-only=true", "--skip-preview=1")
    assert (ran.code, "cannot be combined" in ran.err) == (2, True)
    assert dev("destroy", "--preview-only", "--skip-preview=false", "--emulate").code == 0
    assert dev("stack", "ls", "--json=true").json[0]["name"] == "dev"
    ran = dev("destroy", "--preview-only=maybe")
    assert ran.code == 2
    assert dev("config", "set", "--plaintext=true", "region", "x=true").code == 0


@pytest.mark.parametrize("number", ["0", "-1", "1"])
def test_less_than_one_at_a_time_is_one(number: str) -> None:
    @click.command()
    @parallel_flag
    def show(parallel: int) -> None:
        click.echo(parallel)

    assert CliRunner().invoke(show, ["--parallel", number]).output == "1\n"
    assert CliRunner().invoke(show, [], env={"PULUMI_PARALLEL": number}).output == "1\n"


def test_the_number_of_operations_at_a_time_is_taken_from_the_variable(
    dev: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_PARALLEL", "many")
    ran = dev("preview", "--emulate")
    assert (ran.code, "--parallel" in ran.err) == (2, True)


@pytest.mark.slow
def test_a_project_that_always_refreshes(applied_project: PlannedProject) -> None:
    file = applied_project.project / "Pulumi.yaml"
    reads = len(applied_project.read_paths)
    assert applied_project.run("preview").code == 0
    without = len(applied_project.read_paths) - reads
    file.write_text(file.read_text() + "options:\n  refresh: always\n")
    reads = len(applied_project.read_paths)
    assert applied_project.run("preview").code == 0
    assert len(applied_project.read_paths) - reads > without
    for flags in (["--refresh=false"], ["--refresh", "--refresh=false"]):
        reads = len(applied_project.read_paths)
        assert applied_project.run("preview", *flags).code == 0
        assert len(applied_project.read_paths) - reads == without
    for flags in (["--refresh=true"], ["--refresh=false", "-r"]):
        reads = len(applied_project.read_paths)
        assert applied_project.run("preview", *flags).code == 0
        assert len(applied_project.read_paths) - reads > without
    file.write_text(file.read_text().replace("always", "sometimes"))
    ran = applied_project.run("preview")
    assert (ran.code, "options.refresh must be `always`" in ran.err) == (1, True)


@pytest.mark.slow
def test_resources_are_counted_as_the_cli_counts_them(applied_project: PlannedProject) -> None:
    """Two resources, the stack, and the provider of dynamic resources."""
    (row,) = applied_project.run("stack", "ls", "--json").json
    state = json.loads(applied_project.state_file)["checkpoint"]["latest"]["resources"]
    assert row["resourceCount"] == len(state) == 4


def test_an_object_in_the_configuration_is_shown_as_one(dev: Run) -> None:
    assert dev("config", "set", "--path", "limits.gpus[0]", "16").code == 0
    assert dev("config", "set", "gpus", "16").code == 0
    shown = dev("config", "--json").json
    assert shown["demo:limits"] == {
        "value": '{"gpus":[16]}',
        "objectValue": {"gpus": [16]},
        "secret": False,
    }
    assert "objectValue" not in shown["demo:gpus"]


@pytest.mark.slow
def test_the_event_log_of_an_update_is_not_that_of_its_preview(
    applied_project: PlannedProject,
) -> None:
    log = applied_project.project / "events.jsonl"
    done = applied_project.run("up", "--yes", "-c", "gpus=24", "--event-log", str(log))
    assert done.code == 0, done.err
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert len([each for each in events if "preludeEvent" in each]) == 1
    assert len([each for each in events if "summaryEvent" in each]) == 1
    assert any(
        each["resOutputsEvent"]["metadata"]["op"] == "update"
        for each in events
        if "resOutputsEvent" in each
    )


@pytest.mark.parametrize(
    ("version_range", "is_met"),
    [
        (">=3.5.0 <4.0.0", True),
        ("<3.4.0 || >3.8.0", True),
        (">=3.274.1", True),
        (">3.274.1", False),
        ("!3.274.1", False),
        (">=4.0.0", False),
        ("newest", False),
    ],
)
@pytest.mark.parametrize("source", ["Pulumi.yaml", "the program"])
def test_a_version_of_pulumi_can_be_required(
    dev: Run, project: Path, version_range: str, is_met: bool, source: str
) -> None:
    if source == "Pulumi.yaml":
        file, line = project / "Pulumi.yaml", f"requiredPulumiVersion: '{version_range}'\n"
        file.write_text(file.read_text() + line)
    else:
        program = f"import pulumi\npulumi.require_pulumi_version({version_range!r})\n"
        (project / "__main__.py").write_text(program)
    ran = dev("preview")
    assert ran.code == (0 if is_met else 1), ran.out + ran.err
    told = ran.out + ran.err
    if not is_met:
        assert source in told
        assert version_range in told
        assert "Traceback" not in told


@pytest.mark.parametrize(
    ("listed", "told"),
    [
        ('["*"]', "the default provider of pulumi-python is disabled"),
        ('["pulumi-python"]', "the default provider of pulumi-python is disabled"),
        ('["aws"]', ""),
        ("aws", "is not a list of packages"),
    ],
)
def test_default_providers_can_be_disabled(dev: Run, project: Path, listed: str, told: str) -> None:
    file = project / "Pulumi.dev.yaml"
    line = f"config:\n  pulumi:disable-default-providers: '{listed}'\n"
    file.write_text(file.read_text() + line)
    ran = dev("preview", "--emulate")
    assert ran.code == (1 if told else 0), ran.out + ran.err
    assert told in ran.out + ran.err
