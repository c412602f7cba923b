"""Test installing and uninstalling the plugin: location, completeness, concurrency, launchers."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes.limits import LAST_RESORT

from gpuform.providers.errors import GpuformError
from gpuform.providers.plugin import locations
from gpuform.providers.plugin.locations import (
    InstalledPlugin,
    build_launcher,
    find_interpreter,
    get_plugin_version,
    get_plugins_folder,
    install,
    uninstall,
)

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="shell scripts")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PULUMI_HOME": str(tmp_path / "home"), "PATH": os.environ["PATH"]}


@POSIX
def test_install_writes_the_plugin_where_the_cli_looks(
    environ: dict[str, str], tmp_path: Path
) -> None:
    installation = install(environ)
    folder = tmp_path / "home" / "plugins" / f"resource-gpuform-v{get_plugin_version()}"
    assert (installation.plugin.folder, installation.changed, installation.other_versions) == (
        folder,
        True,
        (),
    )
    program = folder / "pulumi-resource-gpuform"
    assert os.access(program, os.X_OK)
    assert find_interpreter(program.read_bytes()) == sys.executable
    assert [file.name for file in folder.iterdir()] == [program.name]
    assert not installation.plugin.partial.exists()


@POSIX
def test_a_second_install_changes_nothing(environ: dict[str, str]) -> None:
    folder = install(environ).plugin.folder
    program = folder / "pulumi-resource-gpuform"
    before = program.stat()
    assert install(environ).changed is False
    assert program.stat() == before


@POSIX
@pytest.mark.parametrize(
    "damage",
    [
        lambda installed: (installed.folder / locations.COMMAND).write_text("#!/gone/bin/python\n"),
        lambda installed: (installed.folder / locations.COMMAND).chmod(0o600),
        lambda installed: (installed.folder / locations.COMMAND).unlink(),
        lambda installed: installed.partial.touch(),
        lambda installed: (
            (installed.folder / locations.COMMAND).unlink(),
            installed.folder.rmdir(),
            installed.partial.touch(),
        ),
    ],
    ids=["other interpreter", "no permission", "empty", "unfinished", "only begun"],
)
def test_install_repairs_a_damaged_installation(environ: dict[str, str], damage: object) -> None:
    installed = install(environ).plugin
    damage(installed)  # type: ignore[operator]
    repaired = install(environ)
    assert repaired.changed
    assert not installed.partial.exists()
    program = installed.folder / locations.COMMAND
    assert find_interpreter(program.read_bytes()) == sys.executable
    assert os.access(program, os.X_OK)


@POSIX
def test_an_interrupted_install_is_marked_as_incomplete(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(_path: Path, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", raise_disk_full)
    with pytest.raises(GpuformError, match="cannot be written: No space left on device"):
        install(environ)
    (incomplete,) = locations.list_installed_plugins(get_plugins_folder(environ))
    assert incomplete.partial.exists()
    monkeypatch.undo()
    assert install(environ).changed
    assert not incomplete.partial.exists()


@pytest.mark.slow
@POSIX
def test_simultaneous_installs_all_succeed(environ: dict[str, str]) -> None:
    code = "import os; from gpuform.providers.plugin.locations import install; install(os.environ)"
    started = [
        subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **environ})
        for _ in range(3)
    ]
    assert [process.wait(LAST_RESORT) for process in started] == [0, 0, 0]
    assert install(environ).changed is False


@POSIX
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may do anything")
def test_install_into_a_read_only_folder_fails(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o500)
    with pytest.raises(GpuformError, match="cannot be written: Permission denied"):
        install(environ)


def test_install_fails_if_the_home_is_a_file(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    with pytest.raises(GpuformError, match=r"home.* cannot be written: "):
        install(environ)


def test_a_windows_path_as_home_is_refused() -> None:
    for home in (r"C:\Users\ada\.pulumi", r"\\server\share"):
        with pytest.raises(GpuformError, match="a Windows path") as refused:
            get_plugins_folder({"PULUMI_HOME": home}, windows=False)
        assert "/mnt/c/" in str(refused.value.hint)
        assert get_plugins_folder({"PULUMI_HOME": home}, windows=True).name == "plugins"


@POSIX
def test_other_versions_are_reported_and_uninstalled_by_version(environ: dict[str, str]) -> None:
    plugins_folder = get_plugins_folder(environ)
    for name in ("0.0.9", "9.0.0", "9.0.0-rc.1"):
        (plugins_folder / f"resource-gpuform-v{name}").mkdir(parents=True)
    (plugins_folder / "resource-gpuform-extra-v1.0.0").mkdir()
    (plugins_folder / "resource-aws-v7.0.0").mkdir()
    installation = install(environ)
    assert [plugin.version for plugin in installation.other_versions] == [
        "9.0.0-rc.1",
        "0.0.9",
        "9.0.0",
    ]
    assert [
        plugin.version for plugin in installation.other_versions if plugin > installation.plugin
    ] == ["9.0.0"]
    assert [plugin.version for plugin in uninstall(environ, "9.0.0")] == ["9.0.0"]
    assert uninstall(environ, "9.0.0") == []
    assert [plugin.version for plugin in uninstall(environ, None)] == [
        *("9.0.0-rc.1", "0.0.9", get_plugin_version()),
    ]
    assert {folder.name for folder in plugins_folder.iterdir() if folder.is_dir()} == {
        *("resource-gpuform-extra-v1.0.0", "resource-aws-v7.0.0"),
    }


@pytest.mark.parametrize(
    ("python", "pulumi"),
    [
        *(("0.1.0", "0.1.0"), ("0.2", "0.2.0"), ("1.0.0rc1", "1.0.0-rc.1")),
        *(
            ("1.2.3a4", "1.2.3-alpha.4"),
            ("1.2.3.dev5", "1.2.3-dev.5"),
            ("1.0.0-rc.1", "1.0.0-rc.1"),
        ),
    ],
)
def test_python_versions_become_semantic_versions(python: str, pulumi: str) -> None:
    assert get_plugin_version(python) == pulumi
    assert InstalledPlugin(Path(f"resource-gpuform-v{pulumi}")).version == pulumi


UNUSUAL_PATHS = [
    "/opt/my env/bin/python",
    "/opt/it's/bin/python",
    "/opt/$HOME/`x`/python",
    "/a" * 200,
]


@pytest.mark.parametrize("path", UNUSUAL_PATHS)
def test_a_launcher_names_its_interpreter(path: str) -> None:
    assert find_interpreter(build_launcher(Path(path), windows=False)) == path


@pytest.mark.parametrize("path", [r"C:\Program Files\env\python.exe", r"C:\100%\python.exe"])
def test_a_batch_file_names_its_interpreter(path: str) -> None:
    program = build_launcher(Path(path), windows=True)
    assert find_interpreter(program) == path
    assert program.replace(b"\r\n", b"").count(b"\n") == 0


@pytest.mark.parametrize(
    ("program", "named"),
    [
        (b"#!/venv/bin/python\nimport sys\n", "/venv/bin/python"),
        (b"#!/bin/sh\n'''exec' \"/a b/bin/python\" \"$0\" \"$@\"\n' '''\n", "/a b/bin/python"),
        (b"#!/bin/sh\n'''exec' /a/bin/python \"$0\" \"$@\"\n' '''\n", "/a/bin/python"),
        (b'MZ#!\x00 stub #!"C:\\a b\\python.exe"\r\nPK\x03\x04', r"C:\a b\python.exe"),
        (b"MZ stub #!C:\\env\\Scripts\\python.exe\nPK\x03\x04", r"C:\env\Scripts\python.exe"),
        (b"\x7fELF", None),
    ],
)
def test_the_interpreter_of_pips_program_is_found(program: bytes, named: str | None) -> None:
    assert find_interpreter(program) == named


@POSIX
@pytest.mark.parametrize("name", ["my env", "it's", "$HOME `x`"])
def test_a_launcher_starts_its_interpreter(name: str, tmp_path: Path) -> None:
    python = tmp_path / name / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    program = tmp_path / "launcher"
    program.write_bytes(build_launcher(python, windows=False))
    program.chmod(0o755)
    started = [str(program), "127.0.0.1:1"]
    finished = subprocess.run(started, capture_output=True, text=True, check=True)
    assert finished.stdout == "-P -m gpuform.providers.plugin 127.0.0.1:1\n"
    python.unlink()
    finished = subprocess.run(started, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert f"{python} does not exist" in finished.stderr
    assert "gpuform plugin install" in finished.stderr


def test_on_windows_install_prefers_pips_program(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locations, "WINDOWS", True)
    python = tmp_path / "Scripts" / "python.exe"
    python.parent.mkdir()
    plugin = install(environ, python).plugin
    assert [file.name for file in plugin.folder.iterdir()] == ["pulumi-resource-gpuform.cmd"]
    (python.parent / "pulumi-resource-gpuform.exe").write_bytes(b"MZ")
    assert install(environ, python).changed
    assert [file.name for file in plugin.folder.iterdir()] == ["pulumi-resource-gpuform.exe"]
    assert install(environ, python).changed is False
