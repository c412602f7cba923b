"""How the jobs of CI install gpuform: locked with hashes from an index, or from a wheel in git."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from support.servers.package_index import PackageIndex, serve_package_index

from gpuform.stacks.ci_identities import Clouds
from gpuform.stacks.ci_requirements import NotLocked, choose_requirements
from gpuform.stacks.ci_workflows import Repository, WorkflowSettings, render_workflows
from gpuform.stacks.code_hosts.review_target import WORKFLOW_HOSTS, CodeHostName

BESIDE_PYTHON = str(Path(sys.executable).parent)
needs_uv = pytest.mark.skipif(
    not (shutil.which("uv") or shutil.which("uv", path=BESIDE_PYTHON)), reason="uv is not installed"
)


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    """Return an index with this version of gpuform, as a small module that needs `tiny`."""
    with serve_package_index() as served:
        served.publish("gpuform", "0.1.0", "tiny", "large; extra == 'cloud'")
        served.publish("tiny", "1.0")
        served.publish("large", "3.0")
        yield served


@pytest.fixture
def environ(index: PackageIndex, tmp_path: Path) -> Mapping[str, str]:
    """Return an environment whose uv and pip know the index alone."""
    own = {"UV_DEFAULT_INDEX": index.url, "PIP_INDEX_URL": index.url, "PIP_FIND_LINKS": ""}
    folders = {"HOME": str(tmp_path), "UV_CACHE_DIR": str(tmp_path / "cache"), "NO_PROXY": "*"}
    return {"PATH": os.environ["PATH"], "PIP_NO_CACHE_DIR": "1", **own, **folders}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


@needs_uv
def test_a_lock_file_has_versions_and_hashes_and_no_address_of_an_index(
    project: Path, environ: Mapping[str, str], index: PackageIndex
) -> None:
    own_lines = "# mine\ntiny>=1\n"
    (project / "requirements.txt").write_text(f"{own_lines}./wheels/gpuform-0.0.9.whl[cloud]\n")
    (project / "wheels").mkdir()
    (project / "wheels/gpuform-0.0.9-py3-none-any.whl").write_text("old")

    requirements = choose_requirements(project, ["cloud"], environ, vendor=False)
    written = requirements.write(project)

    assert [file.name for file in written] == ["requirements.txt", "requirements.lock"]
    assert written[0].read_text() == f"{own_lines}gpuform[cloud]==0.1.0\n"
    lock = written[1].read_text()
    for file, content in index.wheels.items():
        name, version = file.split("-")[:2]
        assert f"{name}=={version} " in lock.replace("[cloud]", "")
        assert f"--hash=sha256:{hashlib.sha256(content).hexdigest()}" in lock
    assert "http" not in lock
    assert not (project / "wheels").exists()


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_jobs_install_by_the_hashes_of_the_lock_file_from_an_index_of_the_users_choice(
    project: Path, host: CodeHostName
) -> None:
    settings = WorkflowSettings(host, "prod", "main", Clouds(), vendored=False)
    files = render_workflows(Repository(project, project), settings)
    for text in files.values():
        lines = [line for line in text.splitlines() if "pip install" in line]
        assert lines
        for line in lines:
            assert line.endswith("pip install --require-hashes --requirement requirements.lock")
    assert any("PIP_INDEX_URL" in text for text in files.values())
    if host == "github":
        environ = [yaml.safe_load(text)["env"] for text in files.values()]
        assert [own["PIP_INDEX_URL"] for own in environ] == ["${{ vars.PIP_INDEX_URL }}"] * 4


@pytest.mark.slow
@needs_uv
def test_jobs_install_what_is_locked_and_refuse_another_file_of_the_same_version(
    project: Path, environ: Mapping[str, str], index: PackageIndex
) -> None:
    choose_requirements(project, [], environ, vendor=False).write(project)
    index.publish("tiny", "1.1")

    def install(target: str) -> subprocess.CompletedProcess[str]:
        options = ["--require-hashes", "--requirement", "requirements.lock", "--target", target]
        return subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", *options],
            cwd=project,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    installed = install("first")
    assert installed.returncode == 0, installed.stderr
    assert (project / "first/tiny.py").read_text() == "version = '1.0'\n"

    index.publish("tiny", "1.0", "evil")
    refused = install("second")
    assert refused.returncode == 1
    assert "DO NOT MATCH THE HASHES" in refused.stderr


@needs_uv
def test_pins_of_other_packages_stay_when_the_requirements_are_locked_again(
    project: Path, environ: Mapping[str, str], index: PackageIndex
) -> None:
    choose_requirements(project, [], environ, vendor=False).write(project)
    index.publish("tiny", "1.1")
    with (project / "requirements.txt").open("a") as file:
        file.write("large\n")

    choose_requirements(project, [], environ, vendor=False).write(project)

    lock = (project / "requirements.lock").read_text()
    assert "tiny==1.0 " in lock
    assert "large==3.0 " in lock


@needs_uv
def test_without_this_version_on_the_index_nothing_is_written(
    project: Path, environ: Mapping[str, str], index: PackageIndex
) -> None:
    del index.wheels["gpuform-0.1.0-py3-none-any.whl"]
    index.publish("gpuform", "0.2.0")
    with pytest.raises(NotLocked, match=r"cannot be locked: .*gpuform==0\.1\.0"):
        choose_requirements(project, [], environ, vendor=False)
    assert list(project.iterdir()) == []


@needs_uv
def test_a_requirement_without_a_hash_is_refused(project: Path, environ: Mapping[str, str]) -> None:
    (project / "local").mkdir()
    (project / "local/pyproject.toml").write_text("[project]\nname = 'local'\nversion = '1'\n")
    (project / "requirements.txt").write_text("./local\n")
    with pytest.raises(NotLocked, match=r"\./local has no hash"):
        choose_requirements(project, [], environ, vendor=False)


def pretend_installed(folder: Path, monkeypatch: pytest.MonkeyPatch, *files: str) -> None:
    """Let Python find metadata of gpuform with these files, as an installer writes them."""
    metadata = folder / "site/gpuform-0.1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Name: gpuform\nVersion: 0.1.0\nRequires-Python: >=3.11\n")
    for name in files:
        (metadata / name).write_text("pip\n")
    monkeypatch.syspath_prepend(folder / "site")


@needs_uv
def test_a_gpuform_from_an_index_is_locked_by_default(
    project: Path, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_installed(project.parent, monkeypatch, "INSTALLER")
    requirements = choose_requirements(project, [], environ)
    assert "gpuform==0.1.0" in (requirements.lock or "")
    assert requirements.vendor_reason is None


@needs_uv
def test_uvx_names_the_uv_that_runs_gpuform(
    project: Path, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = shutil.which("uv") or shutil.which("uv", path=BESIDE_PYTHON)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    by_uvx = {**environ, "UV": str(uv)}
    assert choose_requirements(project, [], by_uvx, vendor=False).lock


@pytest.mark.parametrize("files", [(), ("INSTALLER", "direct_url.json")])
def test_a_gpuform_from_elsewhere_is_a_wheel_by_default(
    project: Path, monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...]
) -> None:
    pretend_installed(project.parent, monkeypatch, *files)
    requirements = choose_requirements(project, ["cloud"], {})
    assert requirements.lock is None
    assert requirements.text.endswith("\n./wheels/gpuform-0.1.0-py3-none-any.whl[cloud]\n")
    assert "was not installed from a package index" in (requirements.vendor_reason or "")


def test_without_uv_a_wheel_is_the_fallback_unless_a_lock_file_is_asked_for(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_installed(project.parent, monkeypatch, "INSTALLER")
    monkeypatch.setattr(sys, "executable", str(project / "python"))
    requirements = choose_requirements(project, [], {"PATH": str(project)})
    assert requirements.lock is None
    assert requirements.vendor_reason == "uv is not installed, which writes requirements.lock"
    assert requirements.remedy is not None
    with pytest.raises(NotLocked, match="uv is not installed"):
        choose_requirements(project, [], {"PATH": str(project)}, vendor=False)


def test_a_wheel_takes_the_place_of_a_lock_file(project: Path) -> None:
    (project / "requirements.txt").write_text("tiny\ngpuform==0.0.9\n")
    (project / "requirements.lock").write_text("# by\n#    gpuform new ci --upgrade\ntiny==1.0\n")
    choose_requirements(project, [], {}, vendor=True).write(project)
    assert sorted(path.name for path in project.iterdir()) == ["requirements.txt", "wheels"]
    assert (project / "requirements.txt").read_text() == (
        "tiny\n./wheels/gpuform-0.1.0-py3-none-any.whl\n"
    )
