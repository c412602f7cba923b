"""The page of each kind on each platform has every field, and examples that work."""

import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner
from pydantic import BaseModel
from support.topologies.registrations import record_registrations

from gpuform.providers.catalog import list_kinds, load_lifecycle_class
from gpuform.providers.operations import ForeignObjectLookup
from gpuform.providers.permissions import Permission
from gpuform.providers.platform import list_own_platforms
from gpuform.schemas.rules import describe_change_effect, get_field_rules
from gpuform.stacks.cli.app import cli
from tools.reference.resource_pages import get_page_name, render_resource_pages

RESOURCES = list_kinds()


@cache
def render_pages() -> dict[str, str]:
    """Return the pages by name, rendered once and only in a process that plays these tests."""
    return dict(render_resource_pages())


def get_page(platform: str, kind: str) -> str:
    return render_pages()[f"{get_page_name(platform, kind)}.md"]


def get_section(page: str, title: str) -> str:
    """Return the text under a heading, up to the next heading."""
    match = re.search(
        rf"^#+ {re.escape(title)}\n(.*?)(?=^#)", page + "\n#", re.MULTILINE | re.DOTALL
    )
    assert match, title
    return match[1]


def get_row(page: str, title: str, field: str) -> str:
    lines = get_section(page, title).splitlines()
    return next(line for line in lines if line.startswith(f"| `{field}` |"))


def get_block(page: str, language: str) -> str:
    match = re.search(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert match
    return match[1]


@pytest.mark.parametrize(("platform", "kind"), RESOURCES)
def test_a_page_has_every_field_with_its_meaning(platform: str, kind: str) -> None:
    lifecycle, page = load_lifecycle_class(platform, kind), get_page(platform, kind)
    for name, field in lifecycle.inputs.model_fields.items():
        assert f" | {field.description}" in get_row(page, "Inputs", name)
    for name in lifecycle.outputs.model_fields:
        assert get_row(page, "Outputs", name)
    for rules in get_field_rules(lifecycle.inputs).values():
        if rules.nested:
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", rules.nested.__name__)
            title = f"{words.removesuffix(' Inputs').capitalize()} of the inputs"
            for name in rules.nested.model_fields:
                assert get_row(page, title, name)


@pytest.mark.parametrize(("platform", "kind"), RESOURCES)
def test_the_yaml_is_valid_and_the_python_registers_the_same(
    platform: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = get_page(platform, kind)
    folders = {"yaml": tmp_path / "yaml", "python": tmp_path / "python"}
    for language, name in (("yaml", "topology.yaml"), ("python", "__main__.py")):
        folders[language].mkdir()
        (folders[language] / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
        (folders[language] / name).write_text(get_block(page, language))
    monkeypatch.chdir(folders["yaml"])
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    ran = CliRunner().invoke(cli, ["validate"])
    assert (ran.exit_code, "is valid" in ran.output) == (0, True), ran.output
    config = {"password": "Secret#1pass", "wandb_key": "k"}
    registrations = record_registrations(folders["python"], config)
    assert any(f"{platform}:{kind}" in urn for urn in registrations["resources"])
    assert registrations == record_registrations(folders["yaml"], config)


@pytest.mark.parametrize(
    ("platform", "kind", "title", "field", "cells"),
    [
        ("together", "Cluster", "Inputs", "num_gpus", "| in place | required | `16` |"),
        (
            "together",
            "Cluster",
            "Inputs",
            "volume_id",
            "`volume`, a reference to a SharedVolume. |",
        ),
        ("together", "Cluster", "Inputs", "driver_version", "| as the fields it stands for |"),
        ("together", "Cluster", "Inputs", "duration_days", "| whole number, 1 to 90 |"),
        ("together", "Cluster", "On no capacity of the inputs", "wait_minutes", "| nothing |"),
        ("together", "Cluster", "Outputs", "kube_config", "| yes |"),
        ("together", "SharedVolume", "Inputs", "size_tib", "| in place, grow-only | required |"),
        ("scp", "NodePool", "Inputs", "nodes", "| map of [object](#node-of-the-inputs) |"),
        ("scp", "NodePool", "Inputs", "os_user_password", "secret | required |"),
        ("scp", "NodePool", "Inputs", "tags", "| applies to objects created later |"),
    ],
)
def test_a_row_has_the_effect_and_default_of_a_field(
    platform: str, kind: str, title: str, field: str, cells: str
) -> None:
    assert cells in get_row(get_page(platform, kind), title, field)


def test_a_page_has_waiting_times_permissions_and_import_commands() -> None:
    page = get_page("together", "Cluster")
    assert "| create | 90 min |" in get_section(page, "Waiting")
    assert "| `destroy-reserved` |" in get_section(page, "Permissions")
    assert "gpuform import together:Cluster NAME 0f11e35c" in get_section(page, "Import")
    volume = get_section(get_page("together", "SharedVolume"), "Import")
    assert "`ID@REGION`" in volume
    assert "@us-central-8'\n" in volume
    assert "`gpuform config set --secret os_user_password`" in get_section(
        get_page("scp", "NodePool"), "Import"
    )
    assert "`state: STOPPED`" in get_section(get_page("scp", "NodePool"), "Waiting")


def test_the_index_explains_every_effect_of_a_change() -> None:
    index = render_pages()["index.md"]
    for platform, kind in RESOURCES:
        models: list[type[BaseModel]] = [load_lifecycle_class(platform, kind).inputs]
        while models:
            for rules in get_field_rules(models.pop()).values():
                words = describe_change_effect(rules).partition(":")[0]
                pieces = [words] if f"| {words}" in index else words.split(", ")
                assert [piece for piece in pieces if f"| {piece}" not in index] == []
                models += [rules.nested] if rules.nested else []


def test_the_index_links_every_kind() -> None:
    for platform, kind in RESOURCES:
        assert f"[{kind}]({get_page_name(platform, kind)}.md)" in render_pages()["index.md"]


@pytest.mark.parametrize("platform", list_own_platforms())
def test_the_kinds_of_a_platform_declare_the_permissions_that_it_asks_for(platform: str) -> None:
    """Compare `guarded_by` of all kinds with the permissions that the platform's modules name."""
    root = Path(__file__).parents[2] / "providers" / platform
    source = "\n".join(path.read_text() for path in root.rglob("*.py"))
    source = re.sub(r"guarded_by = .*", "", source)
    classes = [
        load_lifecycle_class(platform, kind) for kind in list_own_platforms()[platform].lifecycles
    ]
    asked = set(re.findall(r"\bPermission\.([A-Z_]+)", source))
    if any(issubclass(lifecycle.operations, ForeignObjectLookup) for lifecycle in classes):
        asked.add(Permission.DESTROY_OTHERS.name)  # for all platforms, by the lifecycle
    assert {
        permission.name for lifecycle in classes for permission in lifecycle.relevant_permissions
    } == asked


def test_a_nested_object_has_the_same_effects_wherever_it_is_used() -> None:
    """A page has one table for each nested object, whatever fields contain the object."""
    for platform, kind in RESOURCES:
        effects_of: dict[type, set[tuple[bool, ...]]] = {}
        models = [(load_lifecycle_class(platform, kind).inputs, (False, False, False))]
        while models:
            model, outer = models.pop()
            effects_of.setdefault(model, set()).add(outer)
            for rules in get_field_rules(model).values():
                own = (rules.immutable, rules.local, rules.write_only)
                if rules.nested:
                    both = tuple(a or b for a, b in zip(own, outer, strict=True))
                    models.append((rules.nested, both))
        assert all(len(effects) == 1 for effects in effects_of.values()), (platform, kind)
