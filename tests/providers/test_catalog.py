"""Test the catalogue of platforms, kinds and capabilities, and the cost of importing them."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from types import ModuleType

import pytest

from gpuform.providers import aios, catalog, lens, scp, tensorone, together
from gpuform.providers.errors import UnsupportedKind
from gpuform.providers.platform import platforms
from gpuform.providers.resource import PlatformResource


def test_every_entry_can_be_imported() -> None:
    for platform, kind in catalog.list_kinds():
        assert kind in catalog.KINDS
        assert issubclass(catalog.load_resource_class(platform, kind), PlatformResource)


def test_every_platform_has_the_expected_capabilities() -> None:
    assert catalog.render_capability_table().splitlines() == [
        "| kind | together | scp | tensorone | aios | lens |",
        "| --- | --- | --- | --- | --- | --- |",
        "| Cluster | yes | - | yes | yes | - |",
        "| NodePool | - | yes | - | - | - |",
        "| GpuNode | - | yes | - | yes | - |",
        "| Fabric | - | yes | - | - | - |",
        "| SharedVolume | yes | - | - | - | - |",
        "| VolumeClaim | yes | - | - | - | - |",
        "| Certification | yes | yes | - | - | - |",
        "| HealthGate | - | - | - | - | yes |",
    ]
    assert catalog.list_platforms_with("SharedVolume") == ["together"]


@pytest.mark.parametrize(
    ("platform", "kind", "message"),
    [
        ("together", "HealthGate", "together has no HealthGate: declare it on lens"),
        ("together", "Disk", "together has no Disk, and no other platform has one"),
        ("together", "Fabric", "together has no Fabric: declare it on scp"),
        ("scp", "Cluster", "scp has no Cluster: declare it on together or tensorone or aios"),
        (
            "elsewhere",
            "Cluster",
            "is not a platform\n  use one of together, scp, tensorone, aios, lens",
        ),
        ("toogether", "Cluster", "is not a platform\n  did you mean together?"),
    ],
)
def test_an_unknown_kind_is_refused(platform: str, kind: str, message: str) -> None:
    with pytest.raises(UnsupportedKind, match=message):
        catalog.load_lifecycle_class(platform, kind)


@pytest.mark.parametrize("package", [together, scp, tensorone, aios, lens])
def test_the_platform_package_exports_on_use(package: ModuleType) -> None:
    assert package.__all__ == sorted(package.__all__)
    for name in package.__all__:
        assert getattr(package, name)
    with pytest.raises(AttributeError, match="Clutser"):
        package.Clutser  # noqa: B018 - the access is what is tested


def test_a_lookup_is_a_function_despite_earlier_imports() -> None:
    """Importing a module replaces the package's attribute of the same name."""
    for platform in platforms().values():
        package = importlib.import_module(platform.package)
        for module in pkgutil.iter_modules(package.__path__, f"{platform.package}."):
            importlib.import_module(module.name)
        for name in catalog.list_lookups(platform.name):
            assert getattr(package, name) is catalog.load_lookup(platform.name, name), name
            assert inspect.isfunction(getattr(package, name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        "gpuform.providers.together.resources",
        "gpuform.providers.scp.resources",
        "gpuform.providers.tensorone.resources",
        "gpuform.providers.aios.resources",
        "gpuform.providers.lens.resources",
        "gpuform.providers.catalog",
    ],
)
def test_importing_a_resource_costs_no_http_client(module: str) -> None:
    code = (
        f"import sys, {module}; "
        "print([name for name in ('httpx', 'tenacity', 'flask') if name in sys.modules])"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == "[]"
