"""`gpuform new ci --upgrade`: the files of a newer version, with the edits of users."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from gpuform.schemas.errors import EngineError
from gpuform.stacks.ci_upgrade import CiRecord, UpgradeConflict, get_version, plan_upgrade
from gpuform.stacks.ci_workflows import Repository
from gpuform.stacks.cli.app import cli
from gpuform.stacks.doctor.ci_files import examine_ci_files

WORKFLOW = ".github/workflows/gpuform.yml"
EXPIRE = ".github/workflows/gpuform-expire.yml"
RETENTION = "retention-days: 30"
Invoke = Callable[..., Result]


def build_project(root: Path) -> Path:
    (root / ".git").mkdir()
    (root / "infra").mkdir()
    (root / "infra/Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    return root


def run_new_ci(root: Path, *flags: str) -> Result:
    arguments = ["new", "ci", "--dir", str(root / "infra"), *flags]
    return CliRunner().invoke(cli, arguments, prog_name="gpuform")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build_project(tmp_path)


@pytest.fixture
def invoke(root: Path) -> Invoke:
    return lambda *flags: run_new_ci(root, *flags)


@pytest.fixture(scope="module")
def written_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with workflows for GitHub; packing the wheel takes most of the time."""
    root = build_project(tmp_path_factory.mktemp("written"))
    flags = ["--forge", "github", "--stack", "dev", "--branch", "trunk", "--backend", "s3://b"]
    ended = run_new_ci(root, *flags)
    assert ended.exit_code == 0, ended.output
    return root


@pytest.fixture
def written(root: Path, written_once: Path) -> Path:
    """Return a copy of a repository in which `gpuform new ci` has written workflows."""
    shutil.copytree(written_once, root, dirs_exist_ok=True)
    return root


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def pretend_older(root: Path, old: str, new: str, *, files: bool = True) -> None:
    """Let an earlier version have written `new` where this version writes `old`."""
    record = root / "infra/.gpuform-ci.yaml"
    edit(record, old, new)
    record.write_text(record.read_text().replace("version: 0.1.0", "version: 0.0.9"))
    if files:
        edit(root / WORKFLOW, old, new)


def test_edits_and_changes_of_the_new_version_are_both_kept(written: Path, invoke: Invoke) -> None:
    as_written = (written / WORKFLOW).read_text()
    pretend_older(written, RETENTION, "retention-days: 7")
    edit(written / WORKFLOW, "timeout-minutes: 360", "timeout-minutes: 400")

    ended = invoke("--upgrade")

    assert ended.exit_code == 0, ended.output
    assert f"{WORKFLOW}: merged with your edits" in ended.output
    assert f"{EXPIRE}: unchanged" in ended.output
    expected = as_written.replace("timeout-minutes: 360", "timeout-minutes: 400")
    assert (written / WORKFLOW).read_text() == expected
    (upgraded,) = CiRecord.load(written / "infra").sets
    assert (upgraded.version, upgraded.files[WORKFLOW]) == ("0.1.0", as_written)
    assert (upgraded.settings.stack, upgraded.settings.branch) == ("dev", "trunk")


def test_an_upgrade_keeps_the_line_breaks_of_each_file(written: Path, invoke: Invoke) -> None:
    pretend_older(written, RETENTION, "retention-days: 7")
    edit(written / WORKFLOW, "timeout-minutes: 360", "timeout-minutes: 400")
    names = (WORKFLOW, "infra/requirements.txt", "infra/.gpuform-ci.yaml")
    for file in (written / name for name in names):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))

    assert invoke("--upgrade").exit_code == 0

    for content in ((written / name).read_bytes() for name in names):
        assert content.count(b"\n") == content.count(b"\r\n") > 0
    assert RETENTION in (written / WORKFLOW).read_text()
    assert b"\r" not in (written / EXPIRE).read_bytes()


def test_a_conflict_keeps_both_sides_and_names_its_line(written: Path, invoke: Invoke) -> None:
    pretend_older(written, RETENTION, "retention-days: 7", files=False)
    edit(written / WORKFLOW, RETENTION, "retention-days: 90")

    ended = invoke("--upgrade")

    assert ended.exit_code == 1
    lines = (written / WORKFLOW).read_text().splitlines()
    number = lines.index("<<<<<<< yours") + 1
    assert f"change the same lines: {WORKFLOW}:{number}\n" in ended.output
    assert [line.strip() for line in lines[number : number + 6]] == [
        *("retention-days: 90", "||||||| gpuform 0.0.9", "retention-days: 7"),
        *("=======", RETENTION, ">>>>>>> gpuform 0.1.0"),
    ]

    again = invoke("--upgrade")
    assert again.exit_code == 1
    assert f"{WORKFLOW}:{number}: a conflict of an earlier upgrade is still there" in again.output


def test_a_refused_upgrade_writes_nothing(written: Path) -> None:
    pretend_older(written, "timeout-minutes: 120", "timeout-minutes: 60", files=False)
    with (written / WORKFLOW).open("a") as file:
        file.write("<<<<<<< yours\n")
    before = {path: path.read_bytes() for path in written.rglob("*") if path.is_file()}
    with pytest.raises(UpgradeConflict):
        plan_upgrade(Repository.find(written / "infra"), {}, vendor=None)
    assert {path: path.read_bytes() for path in written.rglob("*") if path.is_file()} == before


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_an_upgrade_that_was_killed_can_be_run_again(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_older(written, RETENTION, "retention-days: 7")
    edit(written / WORKFLOW, "timeout-minutes: 360", "timeout-minutes: 400")
    repository = Repository.find(written / "infra")
    upgrade = plan_upgrade(repository, {}, vendor=None)
    with monkeypatch.context() as patched:
        patched.setattr(CiRecord, "save", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            upgrade.write(repository)
    after_kill = (written / WORKFLOW).read_text()
    assert RETENTION in after_kill

    again = plan_upgrade(repository, {}, vendor=None)
    again.write(repository)

    assert again.record == upgrade.record
    assert not any(file.conflicts for file in again.files)
    assert (written / WORKFLOW).read_text() == after_kill
    assert "timeout-minutes: 400" in after_kill


def test_a_removed_file_stays_removed_and_an_edited_one_that_is_no_longer_written_stays(
    written: Path,
) -> None:
    record = written / "infra/.gpuform-ci.yaml"
    document = yaml.safe_load(record.read_text())
    files = document["sets"][0]["files"]
    files[EXPIRE] = files[EXPIRE].replace("timeout-minutes: 120", "timeout-minutes: 60")
    files |= {"old.yml": "old\n", "mine.yml": "old\n", "gone.yml": "old\n"}
    del files[".github/workflows/gpuform-repair.yml"]
    record.write_text(yaml.safe_dump(document))
    (written / EXPIRE).unlink()
    (written / ".github/workflows/gpuform-repair.yml").unlink()
    (written / "old.yml").write_text("old\n")
    (written / "mine.yml").write_text("old\nmine\n")

    repository = Repository.find(written / "infra")
    upgrade = plan_upgrade(repository, {}, vendor=None)
    upgrade.write(repository)

    files = [file for file in upgrade.files if file.path.endswith(".yml")]
    outcomes = {file.path: file.outcome.partition(":")[0] for file in files}
    assert outcomes == {
        WORKFLOW: "unchanged",
        ".github/workflows/gpuform-drift.yml": "unchanged",
        EXPIRE: "left out, because you have removed it",
        "old.yml": "removed",
        "mine.yml": "kept with your edits",
        "gone.yml": "unchanged",
        ".github/workflows/gpuform-repair.yml": "new",
    }
    assert not (written / EXPIRE).exists()
    assert not (written / "old.yml").exists()
    assert (written / "mine.yml").read_text() == "old\nmine\n"
    assert (written / ".github/workflows/gpuform-repair.yml").exists()


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_workflows_of_two_code_hosts_are_upgraded_together(written: Path, invoke: Invoke) -> None:
    assert invoke("--forge", "gitlab", "--rehearse").exit_code == 0
    requirements = (written / "infra/requirements.txt").read_text()
    assert "[cloud,emulator]" in requirements
    edit(written / ".gitlab-ci.yml", "expire_in: 30 days", "expire_in: 60 days")

    ended = invoke("--upgrade")

    assert ended.exit_code == 0, ended.output
    assert len(CiRecord.load(written / "infra").sets) == 2
    assert "expire_in: 60 days" in (written / ".gitlab-ci.yml").read_text()
    assert (written / "infra/requirements.txt").read_text() == requirements


def test_a_second_code_host_cannot_install_gpuform_in_another_way(
    written: Path, invoke: Invoke
) -> None:
    edit(written / "infra/.gpuform-ci.yaml", "vendored: true", "vendored: false")
    ended = invoke("--forge", "gitlab", "--vendor")
    assert ended.exit_code == 1
    assert f"{WORKFLOW} installs gpuform in another way" in ended.output
    assert "gpuform new ci --upgrade --vendor" in ended.output
    assert not (written / ".gitlab-ci.yml").exists()


def test_without_a_record_an_upgrade_is_refused(root: Path, invoke: Invoke) -> None:
    ended = invoke("--upgrade")
    assert ended.exit_code == 1
    assert ".gpuform-ci.yaml is missing" in ended.output
    assert "gpuform new ci --force" in ended.output


def test_a_second_run_names_the_upgrade_and_a_missing_stack(written: Path, invoke: Invoke) -> None:
    missing = "warning: Pulumi.dev.yaml is missing: create the stack with `gpuform stack init dev`"
    assert missing in invoke("--forge", "github", "--stack", "dev").output
    (written / "infra/Pulumi.dev.yaml").touch()
    ended = invoke("--forge", "github", "--stack", "dev")
    assert ended.exit_code == 1
    assert "--force replaces them; `gpuform new ci --upgrade` keeps your edits" in ended.output
    assert "is missing" not in ended.output


def test_doctor_finds_workflows_of_another_version_and_packages_without_a_lock(
    written: Path,
) -> None:
    pretend_older(written, RETENTION, "retention-days: 7")
    project = written / "infra"
    (project / "requirements.txt").write_text("# mine\n-c other.txt\nTiny_Thing>=1 # why\nbig\n")
    (project / "requirements.lock").write_text("big==1 \\\n    --hash=sha256:aa\n")

    findings = {finding.text: finding.remedy for finding in examine_ci_files(project)}

    remedy = "`gpuform new ci --upgrade`"
    assert findings["gpuform.yml is of gpuform 0.0.9, and this is 0.1.0"] == f"change it: {remedy}"
    lock = project / "requirements.lock"
    assert findings[f"{lock} does not lock tiny-thing: the jobs lack it"] == f"lock it: {remedy}"


@pytest.mark.parametrize("path", ["../stolen", "link/stolen", "inner"])
def test_a_record_with_a_file_outside_of_the_repository_is_refused(
    written: Path, tmp_path_factory: pytest.TempPathFactory, path: str
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (written / "link").symlink_to(outside)
    (written / "inner").symlink_to(".git/config")
    record = written / "infra/.gpuform-ci.yaml"
    document = yaml.safe_load(record.read_text())
    document["sets"][0]["files"][path] = "old\n"
    record.write_text(yaml.safe_dump(document))
    with pytest.raises(EngineError, match=f"{path} is a link, or outside of the repository"):
        plan_upgrade(Repository.find(written / "infra"), {}, vendor=None)


@pytest.mark.parametrize(
    "flags", [["--upgrade"], ["--forge", "github", "--stack", "dev", "--force"]]
)
@pytest.mark.parametrize("path", ["infra/requirements.txt", "infra/wheels", WORKFLOW])
def test_no_file_is_written_through_a_link(
    written: Path, tmp_path_factory: pytest.TempPathFactory, path: str, flags: list[str]
) -> None:
    """A hostile branch may hold a link to any file of whoever checks the branch out."""
    outside = tmp_path_factory.mktemp("outside")
    (written / path).rename(outside / "target")
    (written / path).symlink_to(outside / "target")
    before = {file: file.read_bytes() for file in outside.rglob("*") if file.is_file()}
    ended = run_new_ci(written, *flags)
    assert ended.exit_code == 1
    assert f"{path} is a link, or outside of the repository" in ended.output
    assert {file: file.read_bytes() for file in outside.rglob("*") if file.is_file()} == before


def test_projects_may_share_their_requirements_by_a_link(written: Path, invoke: Invoke) -> None:
    (written / "infra/requirements.txt").rename(written / "requirements.txt")
    (written / "infra/requirements.txt").symlink_to("../requirements.txt")
    assert invoke("--upgrade").exit_code == 0
    assert "gpuform-" in (written / "requirements.txt").read_text()


def test_a_record_with_an_unknown_cloud_is_refused(written: Path) -> None:
    edit(written / "infra/.gpuform-ci.yaml", "- s3", "- moon")
    with pytest.raises(EngineError, match="has an unknown format: schemes: moon"):
        CiRecord.load(written / "infra")


@pytest.mark.parametrize("label", ["a: b", "../x"])
def test_a_record_with_a_label_that_is_no_name_is_refused(written: Path, label: str) -> None:
    edit(written / "infra/.gpuform-ci.yaml", "label: ''", f"label: '{label}'")
    with pytest.raises(EngineError, match=r"the label .* cannot be written into a workflow"):
        plan_upgrade(Repository.find(written / "infra"), {}, vendor=None)


@pytest.mark.parametrize(
    ("version", "problem"),
    [("9.9.9", "gpuform 9.9.9 has written the workflows"), ("a", "unknown format: version: a")],
)
def test_workflows_of_a_newer_version_are_not_changed_back(
    written: Path, version: str, problem: str
) -> None:
    edit(written / "infra/.gpuform-ci.yaml", f"version: {get_version()}", f"version: {version}")
    with pytest.raises(EngineError, match=problem):
        plan_upgrade(Repository.find(written / "infra"), {}, vendor=None)


@pytest.mark.parametrize("text", ["sets: [{version: 1.0, colour: red}]", "a: [", "- 1"])
def test_a_record_of_another_format_is_refused(root: Path, text: str) -> None:
    (root / "infra/.gpuform-ci.yaml").write_text(text)
    with pytest.raises(EngineError, match=r"\.gpuform-ci\.yaml (has an unknown|cannot be read)"):
        CiRecord.load(root / "infra")


@pytest.mark.parametrize(
    "flag", [["--branch", "main"], ["--stack", "x"], ["--force"], ["--runners", "4"]]
)
def test_flags_that_would_change_the_settings_are_refused(
    written: Path, invoke: Invoke, flag: list[str]
) -> None:
    ended = invoke("--upgrade", *flag)
    assert ended.exit_code == 2
    assert f"--upgrade cannot be combined with {flag[0]}" in ended.output
