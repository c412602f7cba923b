"""Test platforms of other distributions: usable ones, and broken ones that affect nobody else."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from gpuform.providers import catalog
from gpuform.providers import platform as platform_module
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store
from gpuform.providers.errors import BrokenPlatform

OWN = ["together", "scp", "tensorone", "aios", "lens"]
GOOD = """
from gpuform.providers.platform import Platform

PLATFORM = Platform(
    name="sixth", title="Sixth", package="sixth", lifecycles={"Cluster": "sixth.no:Such"},
    address="SIXTH_URL",
)
"""


class Distributions:
    """Distributions that announce platforms, each in a folder on the path."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self.monkeypatch = monkeypatch

    def install(self, distribution: str, module: str, text: str, *, name: str = "sixth") -> None:
        """Write a module whose PLATFORM the distribution announces under a name."""
        folder = self._folder / distribution
        about = folder / f"{distribution}-1.dist-info"
        about.mkdir(parents=True)
        (folder / f"{module}.py").write_text(dedent(text))
        (about / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1\n"
        )
        (about / "entry_points.txt").write_text(
            f"[gpuform.platforms]\n{name} = {module}:PLATFORM\n"
        )
        self.monkeypatch.syspath_prepend(folder)
        clear_platform_cache()


def clear_platform_cache() -> None:
    platform_module.find_platforms.cache_clear()
    platform_module.list_settings.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Distributions]:
    yield Distributions(tmp_path, monkeypatch)
    monkeypatch.undo()
    clear_platform_cache()


def test_builtin_platforms_come_first(installed: Distributions) -> None:
    assert list(platform_module.platforms()) == OWN
    installed.install("good", "good_platform", GOOD)
    assert list(platform_module.platforms()) == [*OWN, "sixth"]
    assert list(platform_module.list_own_platforms()) == OWN
    assert catalog.list_platforms_with("Cluster")[-1] == "sixth"


def test_a_platform_found_twice_counts_once(installed: Distributions, tmp_path: Path) -> None:
    installed.install("good", "good_platform", GOOD)
    (tmp_path / "again").symlink_to(tmp_path / "good")
    installed.monkeypatch.syspath_prepend(tmp_path / "again")
    clear_platform_cache()
    assert platform_module.list_unusable_platforms() == {}
    assert "sixth" in platform_module.platforms()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemError('not here')", "SystemError: not here"),
        ("PLATFORM = 1", "is not a gpuform.providers.platform.Platform"),
        (GOOD.replace('name="sixth"', 'name="other"'), "the descriptor has the name 'other'"),
        (GOOD.replace("Cluster", "Disk"), "Disk is not a kind of resource"),
    ],
)
def test_a_broken_platform_is_an_error_only_where_it_is_used(
    installed: Distributions, text: str, message: str
) -> None:
    installed.install("strangers", f"broken_{abs(hash(text))}", text)
    assert list(platform_module.platforms()) == OWN
    with pytest.raises(BrokenPlatform) as refused:
        catalog.load_lifecycle_class("sixth", "Cluster")
    assert "the platform sixth cannot be used: the distribution strangers" in str(refused.value)
    assert message in str(refused.value)
    assert "uninstall strangers" in str(refused.value.hint)
    assert catalog.list_platforms_with("Cluster") == ["together", "tensorone", "aios"]


def test_a_failing_emulator_is_omitted(
    installed: Distributions, caplog: pytest.LogCaptureFixture
) -> None:
    broken = GOOD.replace("address=", 'emulator="sixth.no:parts", address=')
    installed.install("strangers", "failing_platform", broken)
    with Store(None) as store:
        app = create_app(store, Clock(store))
        assert app.test_client().get("/_emulator/health").status_code == 200
    assert "sixth is not emulated: sixth.no:parts fails: ModuleNotFoundError" in caplog.text


def test_two_platforms_of_one_name_are_refused(installed: Distributions) -> None:
    installed.install("first", "first_platform", GOOD)
    installed.install("second", "second_platform", GOOD)
    assert list(platform_module.platforms()) == OWN
    with pytest.raises(BrokenPlatform) as refused:
        catalog.require_platform("sixth")
    assert "second and first both have a platform of this name" in str(refused.value)
    assert "uninstall" in str(refused.value.hint)


def test_a_builtin_platforms_name_cannot_be_taken(installed: Distributions) -> None:
    installed.install("impostor", "impostor_platform", GOOD.replace("sixth", "lens"), name="lens")
    assert list(platform_module.platforms()) == OWN[:-1]
    with pytest.raises(BrokenPlatform) as refused:
        catalog.load_lifecycle_class("lens", "HealthGate")
    assert "gpuform and impostor both have a platform of this name" in str(refused.value)
