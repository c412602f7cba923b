"""Commands that change a state, killed at every point where they touch the disk."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT
from support.servers.bucket_server import KEYS, BucketServer, build_bucket_url
from support.stacks.stack_files import add_history_and_records, read_stack_files

from gpuform.providers.values import Secret
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import ResourceState, Snapshot
from gpuform.stacks.engine.store import Backend

Run = Any
pytestmark = pytest.mark.slow

STACK = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"
MACHINE = "urn:pulumi:dev::demo::lab:index:Machine::a"

# Runs a command in copies of a folder, each time in a child that dies one step later, until one
# lives. What a child leaves stays in its copy. NUMBER in an argument is the number of the child.
KILLER = """
import os, pathlib, shutil, sys
from gpuform.stacks.cli import app
from gpuform.stacks.cli.commands import stack_commands, state_commands
from gpuform.stacks.engine import machine
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter

pristine, scratch, salt, *arguments = sys.argv[1:]
PassphraseCrypter("", salt).check()


def mortal(holder, name, left):
    function = getattr(holder, name)

    def call(*given, **options):
        left[0] -= 1
        if left[0] == 0:
            os._exit(9)
        return function(*given, **options)

    setattr(holder, name, call)


def run(folder, number):
    os.chdir(folder / "project")
    os.environ["PULUMI_HOME"] = str(folder / "home")
    left = [number]
    for holder, name in (
        (os, "fsync"), (pathlib.Path, "replace"), (pathlib.Path, "unlink"), (os, "close"),
    ):
        mortal(holder, name, left)
    given = [argument.replace("NUMBER", str(number)) for argument in arguments]
    if any(argument.startswith("s3://") for argument in given):
        from gpuform.stacks.engine.store.buckets import Objects

        for name in ("write", "copy", "delete"):
            mortal(Objects, name, left)
    try:
        app.cli.main(args=given, prog_name="gpuform")
    except SystemExit as ended:
        os._exit(ended.code or 0)


for number in range(1, 300):
    folder = pathlib.Path(scratch) / str(number)
    shutil.copytree(pristine, folder)
    child = os.fork()
    if child == 0:
        run(folder, number)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 9:
        sys.exit(code)
"""


@pytest.fixture
def run_on_stack(dev: Run, project: Path, salt: str) -> Run:
    """Write a stack dev with a machine, a secret output and setting, and an empty stack prod."""
    crypter = PassphraseCrypter("", salt)
    outputs = {"key": Secret("hunter2")}
    snapshot = Snapshot(
        "organization/demo/dev",
        [
            ResourceState(STACK, False, "pulumi:pulumi:Stack", outputs=outputs),
            ResourceState(MACHINE, True, "lab:index:Machine", id="m-a", parent=STACK),
        ],
        secrets_provider=crypter.provider,
    )
    (project / ".pulumi/stacks/demo/dev.json").write_bytes(snapshot.to_json(crypter))
    (project / "Pulumi.prod.yaml").write_text(f"encryptionsalt: {salt}\n")
    assert dev("stack", "init", "prod").code == 0
    assert dev("config", "set", "--secret", "token", "hunter2", "--stack", "dev").code == 0
    return dev


class KilledCommand:
    """Run a command to every point of a kill, and yield the remaining files of each."""

    def __init__(
        self, project: Path, scratch: Path, salt: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.project, self.scratch, self.salt = project, scratch, salt
        self.monkeypatch = monkeypatch

    def run_to_every_write(self, *arguments: str, **variables: str) -> Iterator[Path]:
        ran = subprocess.run(
            [
                *(sys.executable, "-c", KILLER),
                *(str(self.project.parent), str(self.scratch), self.salt),
                *arguments,
            ],
            check=False,
            capture_output=True,
            text=True,
            env={**os.environ, **variables},
            timeout=LAST_RESORT,
        )
        assert ran.returncode == 0, ran.stderr
        folders = sorted(self.scratch.iterdir(), key=lambda path: int(path.name))
        assert len(folders) > 8
        for folder in folders:
            self.monkeypatch.chdir(folder / "project")
            self.monkeypatch.setenv("PULUMI_HOME", str(folder / "home"))
            yield folder / "project"


@pytest.fixture
def killed_command(
    run_on_stack: Run,
    project: Path,
    salt: str,
    tmp_path_factory: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> KilledCommand:
    return KilledCommand(project, tmp_path_factory.mktemp("scratch"), salt, monkeypatch)


def get_machine_ids(run: Run, name: str) -> list[str]:
    ran = run("state", "list", "--json", "--stack", name)
    assert ran.code == 0, ran.err
    return [entry["id"] for entry in ran.json["resources"] if entry["id"].startswith("m-")]


def test_a_killed_edit_leaves_the_old_or_the_new_state(
    run_on_stack: Run, killed_command: KilledCommand
) -> None:
    flag_sets = set()
    for _ in killed_command.run_to_every_write("state", "protect", "a", "--yes", "--stack", "dev"):
        resources = run_on_stack("state", "list", "--json", "--stack", "dev").json["resources"]
        flag_sets.add(tuple(resources[1]["flags"]))
        again = run_on_stack("state", "protect", "a", "--yes", "--stack", "dev")
        assert again.code == 0, again.err
    assert flag_sets == {(), ("protected",)}


def test_a_killed_passphrase_change_leaves_readable_secrets(
    run_on_stack: Run, killed_command: KilledCommand, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("stack", "change-secrets-provider", "passphrase", "--stack", "dev")
    working_passphrases = []
    for project in killed_command.run_to_every_write(*command, GPUFORM_NEW_PASSPHRASE="two"):
        works = []
        for passphrase in ("", "two"):
            monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", passphrase)
            ran = run_on_stack("config", "get", "token", "--stack", "dev")
            if ran.code == 0:
                assert ran.out == "hunter2\n"
                state = run_on_stack("stack", "output", "key", "--show-secrets", "--stack", "dev")
                assert state.out == "hunter2\n", state.err
                works.append(passphrase)
        assert len(works) == 1
        working_passphrases += works
        salt = re.search(r"encryptionsalt: (\S+)", (project / "Pulumi.dev.yaml").read_text())
        data = json.loads((project / ".pulumi/stacks/demo/dev.json").read_bytes())
        latest = data["checkpoint"]["latest"]
        assert salt is not None
        assert latest["secrets_providers"]["state"]["salt"] == salt[1]
        assert not list((project / ".pulumi/gpuform").rglob("*.secrets-change"))
    assert working_passphrases == sorted(working_passphrases)
    assert set(working_passphrases) == {"", "two"}


def test_a_killed_rename_is_completed_by_the_same_command(
    run_on_stack: Run, killed_command: KilledCommand
) -> None:
    for _ in killed_command.run_to_every_write("stack", "rename", "live", "--stack", "dev"):
        names = [row["name"] for row in run_on_stack("stack", "ls", "--json").json]
        assert {"dev", "live"} & set(names)
        if "dev" in names:
            again = run_on_stack("stack", "rename", "live", "--stack", "dev")
            assert again.code == 0, again.err
        assert get_machine_ids(run_on_stack, "live") == ["m-a"]
        assert [row["name"] for row in run_on_stack("stack", "ls", "--json").json] == [
            "live",
            "prod",
        ]
        assert run_on_stack("config", "get", "token", "--stack", "live").out == "hunter2\n"


def test_a_killed_rename_of_the_project_is_completed_by_the_same_command(
    run_on_stack: Run, killed_command: KilledCommand
) -> None:
    command = ("stack", "rename", "organization/train/live", "--stack", "dev")
    for project in killed_command.run_to_every_write(*command):
        if "dev" in [row["name"] for row in run_on_stack("stack", "ls", "--json").json]:
            again = run_on_stack(*command)
            assert again.code == 0, again.err
        assert not (project / ".pulumi/stacks/demo/dev.json").exists()
        path = project / "Pulumi.yaml"
        path.write_text(path.read_text().replace("name: demo", "name: train"))
        assert get_machine_ids(run_on_stack, "live") == ["m-a"]


def test_a_killed_move_loses_no_resource(run_on_stack: Run, killed_command: KilledCommand) -> None:
    command = ("state", "move", "--source", "dev", "--dest", "prod", "a", "--yes")
    for _ in killed_command.run_to_every_write(*command):
        dev_ids, prod_ids = (
            get_machine_ids(run_on_stack, "dev"),
            get_machine_ids(run_on_stack, "prod"),
        )
        assert dev_ids or prod_ids
        if dev_ids:
            again = run_on_stack(*command)
            assert again.code == 0, again.err
        assert (get_machine_ids(run_on_stack, "dev"), get_machine_ids(run_on_stack, "prod")) == (
            [],
            ["m-a"],
        )


def test_a_killed_import_leaves_the_old_or_the_new_state(
    run_on_stack: Run, killed_command: KilledCommand, project: Path
) -> None:
    (project / "in.json").write_text('{"version": 3, "deployment": {}}')
    id_sets = set()
    for _ in killed_command.run_to_every_write(
        "stack", "import", "--file", "in.json", "--stack", "dev"
    ):
        id_sets.add(tuple(get_machine_ids(run_on_stack, "dev")))
        assert run_on_stack("stack", "import", "--file", "in.json", "--stack", "dev").code == 0
        assert get_machine_ids(run_on_stack, "dev") == []
    assert id_sets == {("m-a",), ()}


def test_a_killed_repair_is_completed_by_the_same_command(
    run_on_stack: Run, killed_command: KilledCommand, project: Path
) -> None:
    path = project / ".pulumi/stacks/demo/dev.json"
    path.with_name("dev.json.bak").write_bytes(path.read_bytes())
    path.write_bytes(b"torn")
    command = ("state", "repair", "--from-backup", "--yes", "--stack", "dev")
    for folder in killed_command.run_to_every_write(*command):
        assert run_on_stack(*command).code == 0
        assert get_machine_ids(run_on_stack, "dev") == ["m-a"]
        copies = (folder / ".pulumi/stacks/demo").glob("dev.json.[0-9]*")
        assert b"torn" in [path.read_bytes() for path in copies]


def check_killed_moves(run: Run, killed: KilledCommand, url: str) -> set[str]:
    """Complete each killed move, and return where the stack was usable before that."""
    add_history_and_records(killed.project)
    whole = read_stack_files(Backend.open(f"file://{killed.project}", {}))
    usable = set()
    for folder in killed.run_to_every_write("stack", "migrate", url, "--stack", "dev"):
        number = folder.parent.name
        target = Backend.open(
            url.replace("file://..", f"file://{folder.parent}").replace("NUMBER", number)
        )
        # The lease of the killed process expires.
        target.storage.delete(".pulumi/gpuform/demo/dev.lock")
        left = run("state", "list", "--json", "--stack", "dev")
        if left.code == 0:
            assert read_stack_files(Backend.open(f"file://{folder}", {})) == whole
        else:
            assert "stack 'dev' moved to " in left.err
        usable.add("source" if left.code == 0 else "target")
        again = run("stack", "migrate", url.replace("NUMBER", number), "--stack", "dev")
        assert again.code == 0, again.err
        assert read_stack_files(target) == whole
        assert list(read_stack_files(Backend.open(f"file://{folder}", {}))) == [
            ".pulumi/stacks/demo/dev.moved"
        ]
        killed.monkeypatch.setenv("PULUMI_BACKEND_URL", target.url)
        assert get_machine_ids(run, "dev") == ["m-a"]
        killed.monkeypatch.delenv("PULUMI_BACKEND_URL")
    return usable


@pytest.mark.sampled(1)
def test_a_killed_move_to_a_folder_is_completed_by_the_same_command(
    run_on_stack: Run, killed_command: KilledCommand, project: Path
) -> None:
    (project.parent / "there").mkdir()
    usable = check_killed_moves(run_on_stack, killed_command, "file://../there")
    assert usable == {"source", "target"}


@pytest.mark.sampled(4)
def test_a_killed_move_to_a_bucket_is_completed_by_the_same_command(
    run_on_stack: Run,
    killed_command: KilledCommand,
    bucket_server: BucketServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    url = build_bucket_url(bucket_server.create_bucket(), bucket_server.port)
    usable = check_killed_moves(
        run_on_stack, killed_command, url.replace("/team/state", "/team/NUMBER")
    )
    assert usable == {"source", "target"}
