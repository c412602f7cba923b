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
def test_config_flags_of_a_run_set_configuration(applied_project: PlannedProject) -> None:
    ran = applied_project.run("up", "--yes", "--config", "gpus=24", "-c", "type=H100_SXM")
    assert ran.code == 0, ran.err
    assert "gpus was set in Pulumi.dev.yaml" in ran.out
    assert "num_gpus: 16 => 24" in ran.out
    assert applied_project.run("config", "get", "gpus").out == "24\n"
    ran = applied_project.run("preview", "--json", "-c", "gpus=32")
    assert ran.json["changeSummary"]
    assert "gpus was set" in ran.err
    before = (applied_project.project / "Pulumi.dev.yaml").read_text()
    for flags, message in (
        (("-c", "gpus"), "as KEY=VALUE"),
        (("-c", "gpus=8", "-c", "together:apikey=x"), "did you mean together:apiKey?"),
        (("--config-path", "-c", "a[x=1"), "not a valid path of a configuration value"),
    ):
        ran = applied_project.run("up", "--yes", *flags)
        assert ran.code == (2 if message == "as KEY=VALUE" else 1), ran.err
        assert message in ran.err
    assert (applied_project.project / "Pulumi.dev.yaml").read_text() == before


def test_config_flag_encrypts_a_declared_secret(dev: Run, project: Path) -> None:
    file = project / "Pulumi.yaml"
    file.write_text(file.read_text() + "config:\n  token: {type: string, secret: true}\n")
    ran = dev("preview", "--emulate", "-c", "token=hunter2hunter2")
    assert "token was set, encrypted (declared in Pulumi.yaml)" in ran.out
    content = (project / "Pulumi.dev.yaml").read_text()
    assert "hunter2hunter2" not in content + ran.out + ran.err
    assert dev("config", "get", "token").out == "hunter2hunter2\n"


def test_config_path_sets_a_part_of_a_value(dev: Run, project: Path) -> None:
    def read_config() -> Any:
        return json.loads(dev("config", "get", "limits").out)

    for path, value in (
        ("limits.gpus[0]", "16"),
        ("limits.gpus[1]", "0x10"),
        ("limits.open", "true"),
        ('limits["a.b:c"]', "007"),
    ):
        assert dev("config", "set", "--path", path, value).code == 0
    assert read_config() == {"gpus": [16, "0x10"], "open": True, "a.b:c": "007"}
    assert dev("config", "set", "--path", "--secret", "limits.key", "hunter2hunter2").code == 0
    assert "hunter2hunter2" not in (project / "Pulumi.dev.yaml").read_text()
    assert read_config()["key"] == "hunter2hunter2"
    assert dev("config", "get", "--path", "limits.key").out == "hunter2hunter2\n"
    assert dev("config", "get", "--path", "limits.gpus[1]").out == "0x10\n"
    assert dev("config", "rm", "--path", "limits.gpus[0]").code == 0
    assert read_config()["gpus"] == ["0x10"]
    for command, message in (
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
        assert message in ran.err
    assert dev("config", "rm", "--path", "limits").code == 0
    assert dev("config", "get", "limits").code == 1


@pytest.mark.slow
def test_display_flags_select_the_output_of_a_run(applied_project: PlannedProject) -> None:
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
def test_destroy_remove_removes_the_stack(applied_project: PlannedProject) -> None:
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
def test_destroy_remove_keeps_a_stack_that_failed(applied_project: PlannedProject) -> None:
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
        resource["urn"].rpartition("::")[2]
        for resource in applied_project.run("state", "list", "--json").json["resources"]
    ] == ["demo-dev", "default", "data"]


def test_stack_ls_all_lists_stacks_of_all_projects(
    dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = project.parent / "other"
    other.mkdir()
    (other / "Pulumi.yaml").write_text(
        f"name: other\nruntime: python\nbackend: {{url: 'file://{project}'}}\n"
    )
    monkeypatch.chdir(other)
    assert dev("stack", "init", "prod").code == 0
    document = dev("stack", "ls", "--all", "--json").json
    assert [(stack["name"], stack["current"]) for stack in document] == [
        ("organization/demo/dev", False),
        ("organization/other/prod", True),
    ]
    assert [stack["name"] for stack in dev("stack", "ls", "--json").json] == ["prod"]


def test_about_and_whoami_describe_the_environment(
    dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "correct horse")
    document = dev("about", "--json").json
    assert document["project"] == {"name": "demo", "file": str(project / "Pulumi.yaml")}
    assert document["backend"]["url"] == f"file://{project}"
    assert document["stack"]["name"] == "dev"
    assert "PULUMI_CONFIG_PASSPHRASE" in document["environment"]["set"]
    ran = dev("about")
    assert "pulumi sdk" in ran.out
    assert "correct horse" not in ran.out
    assert dev("about", "--stack", "nope").code == 0
    user = dev("whoami").out.strip()
    assert dev("whoami", "--verbose").out == f"User: {user}\nBackend URL: file://{project}\n"
    assert dev("whoami", "--json").json == {"user": user, "url": f"file://{project}"}
    (project / "Pulumi.yaml").write_text("name: [\n")
    assert "Pulumi.yaml" in dev("about").out
    monkeypatch.chdir(project.parent)
    (project / "Pulumi.yaml").unlink()
    assert "gpuform" in dev("about").out


def test_the_page_of_flags_lists_every_difference() -> None:
    """Compare with recordings of `pulumi COMMAND --help` of every command."""
    page = (Path(__file__).parents[3] / "docs" / "reference" / "pulumi-flags.md").read_text()
    sections = dict(word.split("\n", 1) for word in page.split("\n## ")[1:])
    lacking, _, everywhere = sections["Flags that only Pulumi has"].partition("on every command")
    own = sections["Flags that only gpuform has"]
    differences = find_differences()
    for name, listed, actual in (
        ("Pulumi", _parse_table(lacking), differences.only_pulumi),
        ("gpuform", _parse_table(own), differences.only_gpuform),
    ):
        missing, surplus = actual - listed, listed - actual
        assert not missing | surplus, f"flags of {name} alone: add {missing}, remove {surplus}"
    assert set(re.findall(r"`([^`]+)`", everywhere)) == differences.missing_global_flags
    commands = sections["Commands that only Pulumi has"]
    assert set(re.findall(r"`([^`]+)`", commands)) == differences.missing_commands


def _parse_table(table: str) -> set[tuple[str, str]]:
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    named = [[re.findall(r"`([^`]+)`", cell) for cell in row[:2]] for row in rows]
    pairs = [(flag, command) for flags, commands in named for flag in flags for command in commands]
    assert len(pairs) == len(set(pairs))
    return set(pairs)


def test_aliases_of_pulumi_commands_work(dev: Run) -> None:
    assert dev("stack", "list", "--json").json[0]["name"] == "dev"
    assert dev("config", "remove", "nothing").code == 1
    for command in (("pre",), ("down",), ("update",), ("stack", "remove"), ("state", "remove")):
        assert dev(*command, "--help").code == 0
    assert dev("list").code == 2


def test_boolean_flags_accept_true_and_false(dev: Run) -> None:
    assert dev("destroy", "--preview-only=true", "--emulate=true").code == 0
    ran = dev("destroy", "--preview-only=true", "--skip-preview=1")
    assert (ran.code, "cannot be combined" in ran.err) == (2, True)
    assert dev("destroy", "--preview-only", "--skip-preview=false", "--emulate").code == 0
    assert dev("stack", "ls", "--json=true").json[0]["name"] == "dev"
    ran = dev("destroy", "--preview-only=maybe")
    assert ran.code == 2
    assert dev("config", "set", "--plaintext=true", "region", "x=true").code == 0


@pytest.mark.parametrize("number", ["0", "-1", "1"])
def test_parallel_below_one_is_one(number: str) -> None:
    @click.command()
    @parallel_flag
    def show(parallel: int) -> None:
        click.echo(parallel)

    assert CliRunner().invoke(show, ["--parallel", number]).output == "1\n"
    assert CliRunner().invoke(show, [], env={"PULUMI_PARALLEL": number}).output == "1\n"


def test_parallel_is_read_from_its_variable(dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_PARALLEL", "many")
    ran = dev("preview", "--emulate")
    assert (ran.code, "--parallel" in ran.err) == (2, True)


@pytest.mark.slow
def test_a_project_with_refresh_always_refreshes_previews(applied_project: PlannedProject) -> None:
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
def test_stack_ls_counts_resources_as_the_pulumi_cli(applied_project: PlannedProject) -> None:
    """The count includes two resources, the stack, and the provider of dynamic resources."""
    (row,) = applied_project.run("stack", "ls", "--json").json
    state = json.loads(applied_project.state_file)["checkpoint"]["latest"]["resources"]
    assert row["resourceCount"] == len(state) == 4


def test_config_json_shows_objects(dev: Run) -> None:
    assert dev("config", "set", "--path", "limits.gpus[0]", "16").code == 0
    assert dev("config", "set", "gpus", "16").code == 0
    document = dev("config", "--json").json
    assert document["demo:limits"] == {
        "value": '{"gpus":[16]}',
        "objectValue": {"gpus": [16]},
        "secret": False,
    }
    assert "objectValue" not in document["demo:gpus"]


@pytest.mark.slow
def test_the_event_log_has_the_update_without_its_preview(
    applied_project: PlannedProject,
) -> None:
    log = applied_project.project / "events.jsonl"
    done = applied_project.run("up", "--yes", "-c", "gpus=24", "--event-log", str(log))
    assert done.code == 0, done.err
    events = [json.loads(line) for line in log.read_text().splitlines()]
    assert len([event for event in events if "preludeEvent" in event]) == 1
    assert len([event for event in events if "summaryEvent" in event]) == 1
    assert any(
        event["resOutputsEvent"]["metadata"]["op"] == "update"
        for event in events
        if "resOutputsEvent" in event
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
    output = ran.out + ran.err
    if not is_met:
        assert source in output
        assert version_range in output
        assert "Traceback" not in output


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ('["*"]', "the default provider of pulumi-python is disabled"),
        ('["pulumi-python"]', "the default provider of pulumi-python is disabled"),
        ('["aws"]', ""),
        ("aws", "is not a list of packages"),
    ],
)
def test_default_providers_can_be_disabled(
    dev: Run, project: Path, listed: str, message: str
) -> None:
    file = project / "Pulumi.dev.yaml"
    line = f"config:\n  pulumi:disable-default-providers: '{listed}'\n"
    file.write_text(file.read_text() + line)
    ran = dev("preview", "--emulate")
    assert ran.code == (1 if message else 0), ran.out + ran.err
    assert message in ran.out + ran.err
