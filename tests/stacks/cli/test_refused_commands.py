"""Test which invocations are refused before any effect, and with which exit code."""

from pathlib import Path
from typing import Any

import pytest

from gpuform.stacks.cli import failures, stack_runs

Run = Any


@pytest.mark.parametrize("command", ["up", "refresh", "destroy"])
def test_a_command_that_cannot_ask_names_yes(dev: Run, command: str) -> None:
    ran = dev(command)
    assert ran.code == 1
    assert "cannot ask for it here" in ran.err
    assert "--yes" in ran.err
    assert "--skip-preview" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize("command", ["up", "refresh", "destroy"])
@pytest.mark.usefixtures("terminal")
def test_json_without_yes_is_a_usage_error(dev: Run, command: str) -> None:
    ran = dev(command, "--json")
    assert ran.code == 2
    assert "add --yes" in ran.err


@pytest.mark.parametrize(
    "args",
    [
        ("up", "--nope"),
        ("up", "--parallel", "many"),
        ("up", "--color", "pink"),
        ("destroy", "--expect-no-changes"),
        ("preview", "--yes"),
        ("stack", "init"),
        ("config", "set", "a", "b", "--secret", "--plaintext"),
        ("preview", "--cwd", "no-such-folder"),
    ],
)
def test_bad_flags(dev: Run, args: tuple[str, ...]) -> None:
    ran = dev(*args)
    assert ran.code == 2
    assert "error: " in ran.err
    assert "--help" in ran.err


def test_no_stack_selected_names_stacks_and_commands(run: Run) -> None:
    ran = run("preview")
    assert ran.code == 6
    assert "no stack is selected" in ran.err
    assert "gpuform stack init" in ran.err


def test_an_unknown_stack_names_the_stacks(dev: Run) -> None:
    ran = dev("preview", "--stack", "prod")
    assert ran.code == 6
    assert "no stack named 'prod'" in ran.err
    assert "dev" in ran.err


def test_a_missing_project_file_is_an_error(run: Run, tmp_path: Path) -> None:
    ran = run("preview", "-C", str(tmp_path))
    assert ran.code == 1
    assert "no Pulumi.yaml" in ran.err
    assert "--cwd" in ran.err


def test_a_missing_passphrase_names_its_variables(
    dev: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    ran = dev("preview")
    assert ran.code == 1
    assert "PULUMI_CONFIG_PASSPHRASE " in ran.err
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" in ran.err


def test_a_wrong_passphrase_is_an_error(dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "wrong")
    ran = dev("preview")
    assert ran.code == 1
    assert "incorrect passphrase" in ran.err


def test_a_locked_stack_names_the_owner_of_the_lock(dev: Run, project: Path) -> None:
    lock = project / ".pulumi/locks/organization/demo/dev/other.json"
    lock.parent.mkdir(parents=True)
    lock.write_text('{"pid": 1, "username": "ada", "hostname": "elsewhere"}')
    ran = dev("up", "--yes")
    assert ran.code == 1
    assert "ada@elsewhere" in ran.err
    assert lock.exists()


def test_an_event_log_that_cannot_be_written_is_an_error(dev: Run) -> None:
    ran = dev("preview", "--event-log", "no/such/folder.jsonl")
    assert ran.code == 1
    assert "no/such/folder.jsonl" in ran.err


def break_run_command(monkeypatch: pytest.MonkeyPatch) -> None:
    value = "hunter2"

    def fail(*args: object) -> int:
        raise KeyError(value)

    monkeypatch.setattr(stack_runs, "run_command", fail)


def test_an_internal_error_is_one_line_without_values(
    dev: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_run_command(monkeypatch)
    ran = dev("preview")
    assert ran.code == 255
    assert ran.err.startswith("error: internal error (KeyError at fail")
    assert "report it" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert "hunter2" not in ran.err


@pytest.mark.parametrize("flag", ["-v", "--verbose"])
def test_verbose_shows_the_traceback_of_an_internal_error(
    dev: Run, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    break_run_command(monkeypatch)
    ran = dev("preview", flag)
    assert "run_commands.py" in ran.err
    assert "hunter2" not in ran.err


def test_an_interrupted_prompt_is_an_error_without_traceback() -> None:
    assert failures.describe_failure(KeyboardInterrupt(), verbose=False) == (
        1,
        ["error: interrupted"],
    )
