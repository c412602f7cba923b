"""Renames: every place that names something is changed, and nothing else is."""

from pathlib import Path

import pytest

from gpuform.stacks.lsp.aliasing import RenameRefused, by_file, edited
from gpuform.stacks.lsp.checking import check
from gpuform.stacks.lsp.renaming import rename, renameable
from gpuform.stacks.lsp.topologies import TopologyText

EXAMPLES = Path(__file__).parents[3] / "examples"
VOLUME = "platform: together, region: us-central-8, size_tib: 5, volume_name: v"
SETTINGS = "encryptionsalt: v1:x\n"


def renamed(folder: Path, files: dict[str, str], at: str, old: str, new: str) -> dict[str, str]:
    """The files after the name behind `at` in topology.yaml is renamed."""
    if not (folder / "Pulumi.yaml").exists():
        (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    name, _, behind = at.rpartition("|")
    path = folder / (name or "topology.yaml")
    text = path.read_text(encoding="utf-8")
    begin = text.index(behind + old) + len(behind)
    line = text.count("\n", 0, begin)
    topology = TopologyText(path, text)
    found = renameable(topology, line, begin - (text.rfind("\n", 0, begin) + 1))
    assert found is not None
    edits = by_file(rename(topology, found[0], new))
    texts = {p: (folder / p).read_text(encoding="utf-8") for p in files}
    return {p: edited(text, edits.get((folder / p).resolve(), ())) for p, text in texts.items()}


WAYS = [
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


@pytest.mark.parametrize(("before", "after"), WAYS)
def test_each_place_that_names_it_and_no_other(tmp_path: Path, before: str, after: str) -> None:
    text = f"shared_volumes:\n  data: {{{VOLUME}}}\nclusters:\n  data: {{}}\noutputs:\n  x: {{}}\n"
    files = {"topology.yaml": text.replace("x: {}", f"x: {before}")}
    done = renamed(tmp_path, files, "shared_volumes:\n  ", "data", "disk")
    wanted = text.replace("x: {}", f"x: {after}").replace("  data: {platform", "  disk: {platform")
    assert done["topology.yaml"] == wanted


def test_a_name_that_is_no_word_goes_into_brackets(tmp_path: Path) -> None:
    text = f"shared_volumes: {{data: {{{VOLUME}}}}}\n"
    outputs = "outputs:\n  a: \"{{ shared_volumes.data.id }}\"\n  b: '{{ shared_volumes.data }}'\n"
    done = renamed(tmp_path, {"topology.yaml": text + outputs}, "{", "data", "data-2")
    assert done["topology.yaml"] == (
        f"shared_volumes: {{data-2: {{{VOLUME}}}}}\n"
        "outputs:\n  a: \"{{ shared_volumes['data-2'].id }}\"\n"
        "  b: '{{ shared_volumes[\"data-2\"] }}'\n"
    )


def test_files_that_are_included_share_their_names(tmp_path: Path) -> None:
    files = {
        "topology.yaml": 'include: [volumes.yaml]\noutputs: {a: "{{ shared_volumes.data.id }}"}\n',
        "volumes.yaml": f"shared_volumes:\n  data: {{{VOLUME}}}\n",
    }
    for at in ("shared_volumes.", "volumes.yaml|shared_volumes:\n  "):
        done = renamed(tmp_path, files, at, "data", "disk")
        assert "shared_volumes.disk.id" in done["topology.yaml"]
        assert "  disk: {" in done["volumes.yaml"]
        two = f"shared_volumes: {{two: {{}}}}\n{files['topology.yaml']}"
        with pytest.raises(RenameRefused, match="is there already"):
            renamed(tmp_path, {**files, "topology.yaml": two}, at, "data", "two")


MODULE = (
    "inputs:\n  size: {type: integer}\n"
    f"shared_volumes:\n  data: {{{VOLUME.replace('5', '{{ inputs.size }}')}}}\n"
).replace("size_tib: {{ inputs.size }}", 'size_tib: "{{ inputs.size }}"')


def test_an_input_is_renamed_where_modules_are_given_it(tmp_path: Path) -> None:
    files = {
        "topology.yaml": "include:\n  - {file: m.yaml, name: a, with: {size: 5}}\n"
        "  - file: m.yaml\n    name: size\n    with:\n      size: 6\n",
        "m.yaml": MODULE,
    }
    done = renamed(tmp_path, files, "m.yaml|inputs:\n  ", "size", "tib")
    assert done["topology.yaml"] == files["topology.yaml"].replace("{size:", "{tib:").replace(
        "      size: 6", "      tib: 6"
    )
    assert done["m.yaml"] == MODULE.replace("  size:", "  tib:").replace(
        "inputs.size", "inputs.tib"
    )


def test_a_deployed_resource_of_one_module_keeps_its_object(tmp_path: Path) -> None:
    """Its whole name has the module's."""
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    files = {
        "topology.yaml": "include: [{file: m.yaml, name: a, with: {size: 5}}]\n",
        "m.yaml": MODULE,
    }
    done = renamed(tmp_path, files, "m.yaml|shared_volumes:\n  ", "data", "disk")
    assert "  disk: {options: {aliases: [{name: a-data}]}, " in done["m.yaml"]


@pytest.mark.parametrize("more", ["- {file: m.yaml, name: b, with: {size: 5}}", "- n.yaml"])
def test_one_of_several_modules_is_left_to_a_person(tmp_path: Path, more: str) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    repeated = "for_each: [x], " if more == "- n.yaml" else ""
    files = {
        "topology.yaml": f"include:\n  - {{file: m.yaml, name: a, {repeated}with: {{size: 5}}}}\n"
        f"  {more}\n",
        "m.yaml": MODULE,
        "n.yaml": "outputs: {a: 1}\n",
    }
    with pytest.raises(RenameRefused, match="another whole name in each instance"):
        renamed(tmp_path, files, "m.yaml|shared_volumes:\n  ", "data", "disk")


def test_a_name_that_another_one_had_is_refused(tmp_path: Path) -> None:
    """A stack may have that one under it, and would take the one for the other."""
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    text = f"shared_volumes:\n  t: {{options: {{aliases: [{{name: a}}]}}, {VOLUME}}}\n"
    text += f"  b: {{{VOLUME}}}\n"
    with pytest.raises(RenameRefused, match="was called a before"):
        renamed(tmp_path, {"topology.yaml": text}, "\n  ", "b", "a")


def test_what_would_be_wrong_is_refused_with_its_reason(tmp_path: Path) -> None:
    text = f"shared_volumes:\n  a: {{for_each: {{b: 1}}, {VOLUME}}}\n  c: {{{VOLUME}}}\n"
    with pytest.raises(RenameRefused, match="would both have the name a-b"):
        renamed(tmp_path, {"topology.yaml": text}, "\n  ", "c", "a-b")


def test_a_key_that_settings_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text('config:\n  demo:a: "1"\n  demo:b: "2"\n')
    with pytest.raises(RenameRefused, match="has demo:b already"):
        renamed(tmp_path, {"topology.yaml": "config: {a: {}}\n"}, "config: {", "a", "b")


ALIASED = [
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


@pytest.mark.parametrize(("before", "after"), ALIASED)
def test_what_may_be_deployed_gets_its_earlier_name(
    tmp_path: Path, before: str, after: str
) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    files = {"topology.yaml": f"shared_volumes:\n  {before}\n"}
    done = renamed(tmp_path, files, "shared_volumes:\n  ", "data", "disk")
    assert done["topology.yaml"] == f"shared_volumes:\n  {after}\n"


def test_an_inherited_option_is_left_to_a_person(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    text = "shared_volumes:\n  one: &one\n    options: {protect: true}\n  data:\n    <<: *one\n"
    with pytest.raises(RenameRefused, match="options that stand elsewhere"):
        renamed(
            tmp_path, {"topology.yaml": text}, "    options: {protect: true}\n  ", "data", "disk"
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


def test_test_files_name_it_as_well(tmp_path: Path) -> None:
    text = f"config: {{gpus: {{}}}}\nshared_volumes:\n  data: {{{VOLUME}}}\n"
    files = {"topology.yaml": text, "tests/a.yaml": CASES}
    done = renamed(tmp_path, files, "shared_volumes:\n  ", "data", "disk")
    assert done["tests/a.yaml"] == (
        CASES.replace("target: [data", "target: [disk")
        .replace("{data: create", "{disk: create")
        .replace("shared_volumes.data", "shared_volumes.disk")
        .replace("absent: [data]", "absent: [disk]")
    )
    done = renamed(tmp_path, files, "config: {", "gpus", "count")
    assert done["tests/a.yaml"] == CASES.replace("gpus:", "count:")


def test_a_name_that_another_section_has_is_ambiguous_in_test_files(tmp_path: Path) -> None:
    text = f"clusters:\n  data: {{}}\nshared_volumes:\n  data: {{{VOLUME}}}\n"
    files = {"topology.yaml": text, "tests/a.yaml": CASES}
    done = renamed(tmp_path, files, "shared_volumes:\n  ", "data", "disk")
    assert done["tests/a.yaml"] == CASES.replace("shared_volumes.data", "shared_volumes.disk")


def test_instances_are_renamed_in_test_files(tmp_path: Path) -> None:
    text = f"shared_volumes:\n  data:\n    for_each: [1, 2]\n  data-x: {{{VOLUME}}}\n"
    cases = "cases:\n  a:\n    expect:\n      plan: {data-1: same, data-*: same, data-x: same}\n"
    done = renamed(
        tmp_path, {"topology.yaml": text, "tests/a.yaml": cases}, "volumes:\n  ", "data", "disk"
    )
    assert "plan: {disk-1: same, disk-*: same, data-x: same}" in done["tests/a.yaml"]


def test_resources_of_modules_are_renamed_in_test_files(tmp_path: Path) -> None:
    files = {
        "topology.yaml": "include:\n  - {file: m.yaml, name: a, with: {size: 5}}\n"
        "  - {file: m.yaml, name: each, for_each: [x], with: {size: 5}}\n",
        "m.yaml": MODULE,
        "tests/a.yaml": "cases:\n  a:\n    expect:\n"
        "      plan: {a-data: create, each-x-data: create, other-data: create, data: create}\n",
    }
    done = renamed(tmp_path, files, "m.yaml|shared_volumes:\n  ", "data", "disk")
    wanted = "plan: {a-disk: create, each-x-disk: create, other-data: create, data: create}"
    assert wanted in done["tests/a.yaml"]


def test_lines_end_as_they_did(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS)
    text = "shared_volumes:\r\n  data:\r\n    size_tib: 5\r\n"
    path = tmp_path / "topology.yaml"
    path.write_bytes(text.encode())
    topology = TopologyText(path, text)
    found = renameable(topology, 1, 3)
    assert found is not None
    assert edited(text, rename(topology, found[0], "disk")) == (
        "shared_volumes:\r\n  disk:\r\n    options: {aliases: [{name: data}]}\r\n"
        "    size_tib: 5\r\n"
    )


def test_a_test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    files = {
        "topology.yaml": f"shared_volumes:\n  data: {{{VOLUME}}}\n",
        "tests/a.yaml": "cases: {",
    }
    with pytest.raises(RenameRefused, match=r"a\.yaml:\d+:\d+"):
        renamed(tmp_path, files, "shared_volumes:\n  ", "data", "disk")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    text = f"shared_volumes:\n  data: {{{VOLUME}}}\noutputs: [\n"
    with pytest.raises(RenameRefused, match=r"topology\.yaml:\d+:\d+"):
        renamed(tmp_path, {"topology.yaml": text}, "shared_volumes:\n  ", "data", "disk")


@pytest.mark.parametrize("name", ["null", "~", "a b", "", "ü", "{{ x }}", "-a"])
def test_no_name_is_refused(tmp_path: Path, name: str) -> None:
    text = f"shared_volumes:\n  data: {{{VOLUME}}}\n"
    with pytest.raises(RenameRefused):
        renamed(tmp_path, {"topology.yaml": text}, "shared_volumes:\n  ", "data", name)


def test_every_name_of_the_examples_can_be_another(tmp_path: Path) -> None:
    """What is valid stays valid."""
    for file in sorted(EXAMPLES.glob("0*/topology.yaml")):
        topology = TopologyText(file, file.read_text())
        for named in topology.outline.declared.values():
            if renameable(topology, named.span.line, named.span.begin) is None:
                continue
            for name in ("another", "an-other.1"):
                edits = by_file(rename(topology, named, name))
                texts = {
                    path: edited(path.read_text(), each)
                    for path, each in edits.items()
                    if path.parent == file.parent
                }
                assert check(file, texts) == {}, (file, named, name)
