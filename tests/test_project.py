"""Test the project itself: packages, entry points, names and import rules."""

import tomllib
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from gpuform.providers.platform import list_own_platforms

ROOT = Path(__file__).parent.parent
SOURCE_FOLDERS = ("schemas", "providers", "stacks")


def test_every_package_is_in_the_distribution():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    packages = {
        "gpuform." + ".".join(path.parent.relative_to(ROOT).parts)
        for folder in SOURCE_FOLDERS
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert set(settings["packages"]) == packages | {"gpuform.docs"}  # pages, no modules


def test_what_is_announced_to_others_is_there():
    """Scripts and entry points name their functions by texts, which no type checker follows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["scripts"], *project["entry-points"].values()]
    announced = [entry_point for group in groups for entry_point in group.values()]
    assert len(announced) > 2
    for entry_point in announced:
        EntryPoint("name", entry_point, "group").load()


def test_a_face_has_what_it_promises():
    for file in [
        init_file for folder in SOURCE_FOLDERS for init_file in (ROOT / folder).rglob("__init__.py")
    ]:
        package = import_module("gpuform." + ".".join(file.parent.relative_to(ROOT).parts))
        assert [
            name for name in getattr(package, "__all__", ()) if not hasattr(package, name)
        ] == []


@pytest.mark.parametrize("room", SOURCE_FOLDERS)
def test_no_module_has_a_name_that_says_nothing(room):
    vague = {"utils", "util", "helpers", "helper", "common", "manager", "misc", "base"}
    assert [p for p in (ROOT / room).rglob("*.py") if p.stem in vague] == []


@pytest.mark.parametrize(
    "readme",
    [
        *sorted(ROOT.glob("*/README.md")),
        ROOT / "stacks/engine/README.md",
        ROOT / "stacks/operations/README.md",
    ],
)
def test_a_readme_names_every_room_beside_it(readme):
    content = readme.read_text()
    packages = {path.parent.name for path in readme.parent.glob("*/__init__.py")}
    assert [package for package in sorted(packages) if f"`{package}`" not in content] == []


@pytest.mark.parametrize(
    "name", ["The emulator shares nothing with the clients", "The engine knows no platform"]
)
def test_the_rules_of_imports_know_every_platform(name):
    """The contract lists platforms, as a pattern would also match the emulator's packages."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (contract,) = (candidate for candidate in contracts["contracts"] if candidate["name"] == name)
    packages = {platform.package for platform in list_own_platforms().values()}
    assert packages <= set(contract["forbidden_modules"])
