import subprocess
import sys

import pytest

from gpuform.providers import catalog, together
from gpuform.providers.errors import UnsupportedKind
from gpuform.providers.resource import PlatformResource


def test_every_entry_can_be_imported() -> None:
    for platform, kinds in catalog.LIFECYCLES.items():
        for kind in kinds:
            assert kind in catalog.KINDS
            assert issubclass(catalog.resource_class(platform, kind), PlatformResource)


def test_the_capability_table() -> None:
    assert catalog.capability_table() == (
        "| kind | together |\n| --- | --- |\n| Cluster | yes |\n| SharedVolume | yes |\n"
    )
    assert catalog.platforms_with("SharedVolume") == ["together"]


@pytest.mark.parametrize(
    ("platform", "kind", "said"),
    [
        ("together", "Fabric", "together has no Fabric, and no other platform has one"),
        ("toogether", "Cluster", "toogether is not a platform: use one of together"),
    ],
)
def test_a_kind_that_a_platform_lacks(platform: str, kind: str, said: str) -> None:
    with pytest.raises(UnsupportedKind, match=said):
        catalog.lifecycle_class(platform, kind)


def test_a_refusal_names_the_platforms_that_have_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    more = {**catalog.LIFECYCLES, "scp": {"Fabric": "a:B"}}
    monkeypatch.setattr(catalog, "LIFECYCLES", more)
    with pytest.raises(UnsupportedKind, match="scp has no Cluster: declare it on together"):
        catalog.resource_class("scp", "Cluster")


def test_the_platform_package_exports_on_use() -> None:
    assert together.__all__ == sorted(together.__all__)
    for name in together.__all__:
        assert getattr(together, name)
    with pytest.raises(AttributeError, match="Clutser"):
        together.Clutser  # noqa: B018 - the access is what is tested


@pytest.mark.parametrize(
    "module", ["gpuform.providers.together.resources", "gpuform.providers.catalog"]
)
def test_importing_a_resource_costs_no_http_client(module: str) -> None:
    code = (
        f"import sys, {module}; "
        "print([name for name in ('httpx', 'tenacity', 'flask') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
