"""The files that are generated for people and editors: current, and complete."""

import re
from pathlib import Path

import pytest

from gpuform.providers.catalog import all_kinds, lifecycle_class
from gpuform.schemas.rules import rules_of
from gpuform.schemas.topology import SECTIONS, EntryInputs, OptionsInputs, TopologyInputs
from gpuform.stacks import generated
from gpuform.stacks.language.page import reference_page
from gpuform.stacks.language.type_text import yaml_text

PAGE = reference_page()
RESOURCES = all_kinds()


def part(title: str) -> str:
    """The text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#)", PAGE + "#", re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def row(title: str, field: str) -> str:
    return next(line for line in part(title).splitlines() if line.startswith(f"| `{field}` |"))


def test_the_files_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert generated.main(["--check"]) == 0, capsys.readouterr().err


@pytest.mark.slow
def test_a_file_that_is_not_current_is_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generated, "_FOLDER", tmp_path)
    assert generated.main(["--check"]) == 1
    assert f"{tmp_path.name}/topology.md is not current\n" in capsys.readouterr().err
    assert generated.main([]) == 0
    assert (tmp_path / "topology.md").read_text() == PAGE
    assert generated.main(["--check"]) == 0


@pytest.mark.parametrize(("platform", "kind"), RESOURCES)
def test_every_field_of_a_resource_is_there(platform: str, kind: str) -> None:
    lifecycle = lifecycle_class(platform, kind)
    for name, field in lifecycle.inputs.model_fields.items():
        assert f" | {field.description}" in row(f"{kind} on {platform}", name)
    for name in lifecycle.outputs.model_fields:
        assert row(f"Outputs of {kind} on {platform}", name)
    for rules in rules_of(lifecycle.inputs).values():
        if rules.nested:
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", rules.nested.__name__)
            title = f"{words.removesuffix(' Inputs').capitalize()} of {kind} on {platform}"
            for name in rules.nested.model_fields:
                assert row(title, name)


def test_the_files_own_keys_are_there() -> None:
    for name in (*TopologyInputs.model_fields, *SECTIONS):
        assert row("Keys of the file", name)
    for name in EntryInputs.model_fields:
        assert row("Entries", name)
    for name in OptionsInputs.model_fields:
        assert row("Options of an entry", name)


@pytest.mark.parametrize(
    ("title", "field", "told"),
    [
        ("Cluster on together", "num_gpus", "| in place | required | `16` |"),
        ("Cluster on together", "cluster_type", "| in place | `KUBERNETES` | `SLURM` |"),
        ("Cluster on together", "volume_id", "Or `volume`, a SharedVolume itself. | replaces"),
        ("Cluster on together", "driver_version", "| as the fields it stands for |"),
        ("Cluster on together", "duration_days", "| whole number, 1 to 90 |"),
        ("SharedVolume on together", "size_tib", "| in place, grow-only | required |"),
        ("Shared volume of Cluster on together", "size_tib", "| replaces, grow-only, write-only |"),
        ("On no capacity of Cluster on together", "wait_minutes", "| nothing |"),
        ("Outputs of Cluster on together", "kube_config", "| yes |"),
        ("NodePool on scp", "nodes", "| map of [object](#node-of-nodepool-on-scp) |"),
        ("NodePool on scp", "os_user_password", "secret | required |"),
        ("NodePool on scp", "tags", "| holds for what is made later |"),
    ],
)
def test_what_is_said_of_a_field(title: str, field: str, told: str) -> None:
    assert told in row(title, field)


def test_links_lead_to_headings() -> None:
    headings = re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    places = [re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings]
    assert len(places) == len(set(places))
    assert set(re.findall(r"\(#(.*?)\)", PAGE)) <= set(places)


def test_an_object_is_told_once_and_so_has_one_meaning() -> None:
    """Its table says what a change does, which is the same wherever a resource has it."""
    for platform, kind in RESOURCES:
        effects: dict[type, set[tuple[bool, ...]]] = {}
        left = [(lifecycle_class(platform, kind).inputs, (False, False, False))]
        while left:
            model, outer = left.pop()
            effects.setdefault(model, set()).add(outer)
            for rules in rules_of(model).values():
                own = (rules.immutable, rules.local, rules.write_only)
                if rules.nested:
                    both = tuple(a or b for a, b in zip(own, outer, strict=True))
                    left.append((rules.nested, both))
        assert all(len(found) == 1 for found in effects.values()), (platform, kind)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("ON_DEMAND", "ON_DEMAND"),
        ("GPUs to train on.", "GPUs to train on."),
        ("560", '"560"'),
        ("true", '"true"'),
        ("{{ a }}", '"{{ a }}"'),
        ("oidc:", '"oidc:"'),
        (False, "false"),
        ({"a": [1]}, '{"a": [1]}'),
    ],
)
def test_values_as_yaml(value: object, text: str) -> None:
    assert yaml_text(value) == text
