"""Test renames: every reference changes, and nothing else does."""

from pathlib import Path

import pytest

from gpuform.stacks.lsp.aliases import RenameRefused, apply_edits, group_edits_by_file
from gpuform.stacks.lsp.renaming import build_rename_edits, find_renameable
from gpuform.stacks.lsp.sources import check_topology
from gpuform.stacks.lsp.topology_text import TopologyText

EXAMPLES = Path(__file__).parents[3] / "examples"
VOLUME = "platform: together, region: us-central-8, size_tib: 5, volume_name: v"
SETTINGS = "encryptionsalt: v1:x\n"


def rename_entry(
    folder: Path, files: dict[str, str], at: str, old: str, new: str
) -> dict[str, str]:
    """Rename the entry `old` behind `at` in topology.yaml to `new`, and return the files."""
    if not (folder / "Pulumi.yaml").exists():
        (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    for name, content in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    name, _, behind = at.rpartition("|")
    path = folder / (name or "topology.yaml")
    content = path.read_text(encoding="utf-8")
    begin = content.index(behind + old) + len(behind)
    line = content.count("\n", 0, begin)
    topology = TopologyText(path, content)
    entry_and_span = find_renameable(topology, line, begin - (content.rfind("\n", 0, begin) + 1))
    assert entry_and_span is not None
    edits = group_edits_by_file(build_rename_edits(topology, entry_and_span[0], new))
    texts = {p: (folder / p).read_text(encoding="utf-8") for p in files}
    return {
        p: apply_edits(content, edits.get((folder / p).resolve(), ()))
        for p, content in texts.items()
    }


REFERENCE_CASES = [
    ('"{{ shared_volumes.data.id }}"', '"{{ shared_volumes.disk.id }}"'),
    ("\"{{ shared_volumes['data'].id }}\"", "\"{{ shared_volumes['disk'].id }}\""),
    ('"{{ shared_volumes[\\"data\\"].id }}"', '"{{ shared_volumes[\\"disk\\"].id }}"'),
    ("'{{ shared_volumes[''data''].id }}'", "'{{ shared_volumes[''disk''].id }}'"),
    ("'{{ shared_volumes . data . id }}'", "'{{ shared_volumes . disk . id }}'"),
    ('">{{ shared_volumes.data }}<"', '">{{ shared_volumes.disk }}<"'),
    (
        ">\n    {{ 1 ~\n    shared_volumes.data.id }}",
        ">\n    {{ 1 ~\n    shared_volumes.disk.id }}",
    ),
    ("\"{{ {'a': 1}[shared_volumes.data.id] }}\"", "\"{{ {'a': 1}[shared_volumes.disk.id] }}\""),
    ('["{{ shared_volumes.data.id }}", data]', '["{{ shared_volumes.disk.id }}", data]'),
    ("\"{{ 'shared_volumes.data' ~ 1 }}\"", "\"{{ 'shared_volumes.data' ~ 1 }}\""),
    ("\"{{ ['see shared_volumes.data'] }}\"", "\"{{ ['see shared_volumes.data'] }}\""),
    ("shared_volumes.data  # {{ shared_volumes.data }}",) * 2,
    ('"🚀{{ shared_volumes.data.id }}"', '"🚀{{ shared_volumes.disk.id }}"'),
    ('"{{ clusters.data.id }}"',) * 2,
    ('"{{ 8-shared_volumes.data.size_tib }}"', '"{{ 8-shared_volumes.disk.size_tib }}"'),
]


@pytest.mark.parametrize(("before", "after"), REFERENCE_CASES)
def test_a_rename_changes_every_reference_and_nothing_else(
    tmp_path: Path, before: str, after: str
) -> None:
    topology = (
        f"shared_volumes:\n  data: {{{VOLUME}}}\nclusters:\n  data: {{}}\noutputs:\n  x: {{}}\n"
    )
    files = {"topology.yaml": topology.replace("x: {}", f"x: {before}")}
    renamed_files = rename_entry(tmp_path, files, "shared_volumes:\n  ", "data", "disk")
    expected = topology.replace("x: {}", f"x: {after}").replace(
        "  data: {platform", "  disk: {platform"
    )
    assert renamed_files["topology.yaml"] == expected


def test_a_rename_puts_a_name_that_is_no_identifier_into_brackets(tmp_path: Path) -> None:
    topology = f"shared_volumes: {{data: {{{VOLUME}}}}}\n"
    outputs = "outputs:\n  a: \"{{ shared_volumes.data.id }}\"\n  b: '{{ shared_volumes.data }}'\n"
    renamed_files = rename_entry(
        tmp_path, {"topology.yaml": topology + outputs}, "{", "data", "data-2"
    )
    assert renamed_files["topology.yaml"] == (
        f"shared_volumes: {{data-2: {{{VOLUME}}}}}\n"
        "outputs:\n  a: \"{{ shared_volumes['data-2'].id }}\"\n"
        "  b: '{{ shared_volumes[\"data-2\"] }}'\n"
    )


def test_a_rename_changes_included_files(tmp_path: Path) -> None:
    files = {
        "topology.yaml": 'include: [volumes.yaml]\noutputs: {a: "{{ shared_volumes.data.id }}"}\n',
        "volumes.yaml": f"shared_volumes:\n  data: {{{VOLUME}}}\n",
    }
    for at in ("shared_volumes.", "volumes.yaml|shared_volumes:\n  "):
        renamed_files = rename_entry(tmp_path, files, at, "data", "disk")
        assert "shared_volumes.disk.id" in renamed_files["topology.yaml"]
        assert "  disk: {" in renamed_files["volumes.yaml"]
        two = f"shared_volumes: {{two: {{}}}}\n{files['topology.yaml']}"
        with pytest.raises(RenameRefused, match="already exists"):
            rename_entry(tmp_path, {**files, "topology.yaml": two}, at, "data", "two")


MODULE = (
    "inputs:\n  size: {type: integer}\n"
    f"shared_volumes:\n  data: {{{VOLUME.replace('5', '{{ inputs.size }}')}}}\n"
).replace("size_tib: {{ inputs.size }}", 'size_tib: "{{ inputs.size }}"')


def test_renaming_an_input_changes_the_inclusions_that_pass_it(tmp_path: Path) -> None:
    files = {
        "topology.yaml": "include:\n  - {file: m.yaml, name: a, with: {size: 5}}\n"
        "  - file: m.yaml\n    name: size\n    with:\n      size: 6\n",
        "m.yaml": MODULE,
    }
    renamed_files = rename_entry(tmp_path, files, "m.yaml|inputs:\n  ", "size", "tib")
    assert renamed_files["topology.yaml"] == files["topology.yaml"].replace(
        "{size:", "{tib:"
    ).replace("      size: 6", "      tib: 6")
    assert renamed_files["m.yaml"] == MODULE.replace("  size:", "  tib:").replace(
        "inputs.size", "inputs.tib"
    )


def test_a_renamed_resource_of_a_module_gets_an_alias_with_the_modules_name(tmp_path: Path) -> None:
    """The full name of such a resource begins with the module's name."""
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    files = {
        "topology.yaml": "include: [{file: m.yaml, name: a, with: {size: 5}}]\n",
        "m.yaml": MODULE,
    }
    renamed_files = rename_entry(tmp_path, files, "m.yaml|shared_volumes:\n  ", "data", "disk")
    assert "  disk: {options: {aliases: [{name: a-data}]}, " in renamed_files["m.yaml"]


@pytest.mark.parametrize("more", ["- {file: m.yaml, name: b, with: {size: 5}}", "- n.yaml"])
def test_renaming_a_resource_of_several_modules_is_refused(tmp_path: Path, more: str) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    repeated = "for_each: [x], " if more == "- n.yaml" else ""
    files = {
        "topology.yaml": f"include:\n  - {{file: m.yaml, name: a, {repeated}with: {{size: 5}}}}\n"
        f"  {more}\n",
        "m.yaml": MODULE,
        "n.yaml": "outputs: {a: 1}\n",
    }
    with pytest.raises(RenameRefused, match="different full name in each instance"):
        rename_entry(tmp_path, files, "m.yaml|shared_volumes:\n  ", "data", "disk")


def test_a_rename_to_the_alias_of_another_resource_is_refused(tmp_path: Path) -> None:
    """A stack with the other resource under this alias would mistake one for the other."""
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    topology = f"shared_volumes:\n  t: {{options: {{aliases: [{{name: a}}]}}, {VOLUME}}}\n"
    topology += f"  b: {{{VOLUME}}}\n"
    with pytest.raises(RenameRefused, match="has the earlier name a in its aliases"):
        rename_entry(tmp_path, {"topology.yaml": topology}, "\n  ", "b", "a")


def test_a_rename_that_makes_the_topology_invalid_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    topology = f"shared_volumes:\n  a: {{for_each: {{b: 1}}, {VOLUME}}}\n  c: {{{VOLUME}}}\n"
    with pytest.raises(RenameRefused, match="would both have the name a-b"):
        rename_entry(tmp_path, {"topology.yaml": topology}, "\n  ", "c", "a-b")


def test_renaming_a_configuration_key_to_one_in_the_settings_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text('config:\n  demo:a: "1"\n  demo:b: "2"\n')
    with pytest.raises(RenameRefused, match="already has demo:b"):
        rename_entry(tmp_path, {"topology.yaml": "config: {a: {}}\n"}, "config: {", "a", "b")


ALIAS_CASES = [
    (f"data: {{{VOLUME}}}", f"disk: {{options: {{aliases: [{{name: data}}]}}, {VOLUME}}}"),
    ("data:\n    size_tib: 5", "disk:\n    options: {aliases: [{name: data}]}\n    size_tib: 5"),
    (
        "data:\n    options: {protect: true}",
        "disk:\n    options: {aliases: [{name: data}], protect: true}",
    ),
    (
        "data:\n    options:\n      protect: true",
        "disk:\n    options:\n      aliases: [{name: data}]\n      protect: true",
    ),
    (
        "data:\n    options: {aliases: [{name: old}]}",
        "disk:\n    options: {aliases: [{name: data}, {name: old}]}",
    ),
    (
        "data:\n    options:\n      aliases:\n        - name: old",
        "disk:\n    options:\n      aliases:\n        - {name: data}\n        - name: old",
    ),
    (
        "data:\n    options: &o {protect: true}",
        "disk:\n    options: &o {aliases: [{name: data}], protect: true}",
    ),
    (
        "data: &d\n    options: &o\n      protect: true",
        "disk: &d\n    options: &o\n      aliases: [{name: data}]\n      protect: true",
    ),
    ("data:\n    options:", "disk:\n    options: {aliases: [{name: data}]}"),
    ("data:\n    options: {aliases: []}", "disk:\n    options: {aliases: [{name: data}]}"),
    # Back to a name that it had: an alias of itself would say nothing.
    (
        "data:\n    options: {aliases: [{name: disk}]}",
        "disk:\n    options: {aliases: [{name: data}]}",
    ),
    (
        "data:\n    for_each: [a]",
        'disk:\n    options: {aliases: [{name: "data-{{ each.key }}"}]}\n    for_each: [a]',
    ),
    (
        'data:\n    for_each: [a]\n    options: {aliases: [{name: "disk-{{ each.key }}"}]}',
        'disk:\n    for_each: [a]\n    options: {aliases: [{name: "data-{{ each.key }}"}]}',
    ),
]


@pytest.mark.parametrize(("before", "after"), ALIAS_CASES)
def test_a_resource_of_a_project_with_stacks_gets_an_alias(
    tmp_path: Path, before: str, after: str
) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    files = {"topology.yaml": f"shared_volumes:\n  {before}\n"}
    renamed_files = rename_entry(tmp_path, files, "shared_volumes:\n  ", "data", "disk")
    assert renamed_files["topology.yaml"] == f"shared_volumes:\n  {after}\n"


def test_renaming_a_resource_with_inherited_options_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    topology = "shared_volumes:\n  one: &one\n    options: {protect: true}\n  data:\n    <<: *one\n"
    with pytest.raises(RenameRefused, match="shares its options"):
        rename_entry(
            tmp_path,
            {"topology.yaml": topology},
            "    options: {protect: true}\n  ",
            "data",
            "disk",
        )


CASES = """\
defaults: {config: {gpus: 8}}
cases:
  data:  # a case of that name
    config: {gpus: 16}
    target: [data, clusters.data, other]
    expect:
      plan: {data: create, "shared_volumes.data": create, data-1: create}
      absent: [data]
      outputs: {data: 1}
"""


def test_a_rename_changes_test_files(tmp_path: Path) -> None:
    topology = f"config: {{gpus: {{}}}}\nshared_volumes:\n  data: {{{VOLUME}}}\n"
    files = {"topology.yaml": topology, "tests/a.yaml": CASES}
    renamed_files = rename_entry(tmp_path, files, "shared_volumes:\n  ", "data", "disk")
    assert renamed_files["tests/a.yaml"] == (
        CASES.replace("target: [data", "target: [disk")
        .replace("{data: create", "{disk: create")
        .replace("shared_volumes.data", "shared_volumes.disk")
        .replace("absent: [data]", "absent: [disk]")
    )
    renamed_files = rename_entry(tmp_path, files, "config: {", "gpus", "count")
    assert renamed_files["tests/a.yaml"] == CASES.replace("gpus:", "count:")


def test_a_rename_keeps_ambiguous_names_in_test_files(tmp_path: Path) -> None:
    topology = f"clusters:\n  data: {{}}\nshared_volumes:\n  data: {{{VOLUME}}}\n"
    files = {"topology.yaml": topology, "tests/a.yaml": CASES}
    renamed_files = rename_entry(tmp_path, files, "shared_volumes:\n  ", "data", "disk")
    assert renamed_files["tests/a.yaml"] == CASES.replace(
        "shared_volumes.data", "shared_volumes.disk"
    )


def test_a_rename_changes_instances_in_test_files(tmp_path: Path) -> None:
    topology = f"shared_volumes:\n  data:\n    for_each: [1, 2]\n  data-x: {{{VOLUME}}}\n"
    cases = "cases:\n  a:\n    expect:\n      plan: {data-1: same, data-*: same, data-x: same}\n"
    renamed_files = rename_entry(
        tmp_path, {"topology.yaml": topology, "tests/a.yaml": cases}, "volumes:\n  ", "data", "disk"
    )
    assert "plan: {disk-1: same, disk-*: same, data-x: same}" in renamed_files["tests/a.yaml"]


def test_a_rename_changes_resources_of_modules_in_test_files(tmp_path: Path) -> None:
    files = {
        "topology.yaml": "include:\n  - {file: m.yaml, name: a, with: {size: 5}}\n"
        "  - {file: m.yaml, name: each, for_each: [x], with: {size: 5}}\n",
        "m.yaml": MODULE,
        "tests/a.yaml": "cases:\n  a:\n    expect:\n"
        "      plan: {a-data: create, each-x-data: create, other-data: create, data: create}\n",
    }
    renamed_files = rename_entry(tmp_path, files, "m.yaml|shared_volumes:\n  ", "data", "disk")
    expected = "plan: {a-disk: create, each-x-disk: create, other-data: create, data: create}"
    assert expected in renamed_files["tests/a.yaml"]


def test_a_rename_keeps_the_line_endings(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    content = "shared_volumes:\r\n  data:\r\n    size_tib: 5\r\n"
    path = tmp_path / "topology.yaml"
    path.write_bytes(content.encode())
    topology_text = TopologyText(path, content)
    entry_and_span = find_renameable(topology_text, 1, 3)
    assert entry_and_span is not None
    assert apply_edits(content, build_rename_edits(topology_text, entry_and_span[0], "disk")) == (
        "shared_volumes:\r\n  disk:\r\n    options: {aliases: [{name: data}]}\r\n"
        "    size_tib: 5\r\n"
    )


def test_a_rename_with_an_invalid_test_file_is_refused(tmp_path: Path) -> None:
    files = {
        "topology.yaml": f"shared_volumes:\n  data: {{{VOLUME}}}\n",
        "tests/a.yaml": "cases: {",
    }
    with pytest.raises(RenameRefused, match=r"a\.yaml:\d+:\d+"):
        rename_entry(tmp_path, files, "shared_volumes:\n  ", "data", "disk")


def test_a_rename_in_an_invalid_file_is_refused(tmp_path: Path) -> None:
    topology = f"shared_volumes:\n  data: {{{VOLUME}}}\noutputs: [\n"
    with pytest.raises(RenameRefused, match=r"topology\.yaml:\d+:\d+"):
        rename_entry(tmp_path, {"topology.yaml": topology}, "shared_volumes:\n  ", "data", "disk")


@pytest.mark.parametrize("name", ["null", "~", "a b", "", "ü", "{{ x }}", "-a"])
def test_a_rename_to_an_invalid_name_is_refused(tmp_path: Path, name: str) -> None:
    topology = f"shared_volumes:\n  data: {{{VOLUME}}}\n"
    with pytest.raises(RenameRefused):
        rename_entry(tmp_path, {"topology.yaml": topology}, "shared_volumes:\n  ", "data", name)


def test_every_name_of_the_examples_can_be_renamed(tmp_path: Path) -> None:
    """Every renamed example stays valid."""
    for file in sorted(EXAMPLES.glob("0*/topology.yaml")):
        topology = TopologyText(file, file.read_text())
        for named in topology.outline.entries.values():
            if find_renameable(topology, named.span.line, named.span.begin) is None:
                continue
            for name in ("another", "an-other.1"):
                edits = group_edits_by_file(build_rename_edits(topology, named, name))
                texts = {
                    path: apply_edits(path.read_text(), file_edits)
                    for path, file_edits in edits.items()
                    if path.parent == file.parent
                }
                assert check_topology(file, texts) == {}, (file, named, name)
