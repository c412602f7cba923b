"""Adding and removing gpuform's entries of a kubeconfig changes nothing else by a byte."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies.kubeconfig_strategies import (
    GPUFORM_NAMES,
    build_credential,
    kubeconfig_texts,
)

from gpuform.schemas.errors import EngineError
from gpuform.stacks.access.kubeconfig_document import KubeconfigDocument
from gpuform.stacks.access.kubeconfig_editing import SECTIONS
from gpuform.stacks.access.kubeconfig_files import (
    CredentialOptions,
    add_credentials,
    remove_contexts,
)

HEAD = "apiVersion: v1\nkind: Config\n"
HAND_WRITTEN = [
    "",
    "\n# nothing yet",
    "---",
    "{}",
    "\ufeff" + HEAD,
    HEAD + "clusters: null\ncontexts: []\nusers: ~",
    HEAD + "clusters:\ncontexts: # none yet\nusers:\n# the end",
    HEAD + "users: &u []\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context:   ~ # x\n",
    "  kind: Config\n  contexts:\n    # mine\n    - # odd - comment\n      name: z\n",
    HEAD + "users:\n- name: u\n  user:\n    token: |\n      abc\n\n\n# end\ncurrent-context: ''\n",
    '{\n\t"contexts": [\n\t\t{\n\t\t\t"name": "a",\n\t\t\t"context": {}\n\t\t}\n\t]\n}\n',
    HEAD + "x: &x {a: 1}\ncontexts:\n- name: a\n  context: *x\n",
]


def add_contexts(kubeconfig: str, *names: str, **options: bool) -> str:
    return add_credentials(
        kubeconfig, "f", [build_credential(name) for name in names], CredentialOptions(**options)
    )


def remove_named_contexts(kubeconfig: str, *names: str) -> str:
    return remove_contexts(kubeconfig, "f", lambda name, _: name in names)


def parse_kubeconfig(kubeconfig: str) -> Any:
    return yaml.safe_load(kubeconfig.removeprefix("\ufeff").replace("\t", " ")) or {}


NAMES = st.lists(st.sampled_from(GPUFORM_NAMES), unique=True, min_size=1, max_size=2)


@settings(max_examples=15)
@given(kubeconfig_texts(), NAMES, st.booleans())
def test_removing_added_credentials_restores_every_byte(
    text: str, names: list[str], make_current: bool
) -> None:
    assert_edits_are_undone(text, names, make_current)


@pytest.mark.slow
@settings(max_examples=150)
@given(kubeconfig_texts(), NAMES, st.booleans())
def test_removing_added_credentials_restores_every_byte_of_many_more_files(
    text: str, names: list[str], make_current: bool
) -> None:
    assert_edits_are_undone(text, names, make_current)


def assert_edits_are_undone(kubeconfig: str, names: list[str], make_current: bool) -> None:
    edited = add_contexts(kubeconfig, *names, make_current=make_current)
    assert set(KubeconfigDocument(edited, "f").find_labels()) == set(names)
    assert add_contexts(edited, *names, make_current=make_current) == edited or make_current
    before, after = parse_kubeconfig(kubeconfig), parse_kubeconfig(edited)
    for section in SECTIONS:
        others = [entry for entry in after[section] if entry["name"] not in names]
        assert others == (before.get(section) or [])
        assert len(after[section]) == len(others) + len(names)
    other_members = {
        key: value for key, value in before.items() if key not in (*SECTIONS, "current-context")
    }
    assert other_members.items() <= after.items()
    if before.get("current-context") and not make_current:
        assert after["current-context"] == before["current-context"]
    else:
        assert after["current-context"] in names
    # A former current context without an entry is not restored.
    dangles = make_current and before.get("current-context") not in (
        None, "", *(entry["name"] for entry in before.get("contexts") or ())
    )  # fmt: skip
    if dangles:
        assert parse_kubeconfig(remove_named_contexts(edited, *names)) == {
            **before,
            "current-context": "",
        }
    else:
        assert remove_named_contexts(edited, *names) == kubeconfig


@pytest.mark.slow
@pytest.mark.parametrize("text", HAND_WRITTEN)
def test_removing_added_credentials_restores_hand_written_files(text: str) -> None:
    edited = add_contexts(text, "training", "other")
    assert remove_named_contexts(edited, "training", "other") == text
    assert remove_named_contexts(remove_named_contexts(edited, "other"), "training") == text


@settings(max_examples=15)
@given(kubeconfig_texts())
def test_an_updated_credential_takes_the_place_of_the_old_one(text: str) -> None:
    old = add_contexts(text, "training")
    new = add_credentials(old, "f", [build_credential("training", "another")], CredentialOptions())
    assert new == old.replace("t0ken", "another")
    assert remove_named_contexts(new, "training") == text


def test_kubeconfigs_that_gpuform_cannot_edit_are_refused() -> None:
    for kubeconfig, message in [
        ("contexts: 3", "f:1:1: contexts is not a list"),
        ("a: &a []\ncontexts: *a\n", "f:2:1: contexts is a YAML alias"),
        ("contexts: []\ncontexts: []\n", "f:2:1: contexts occurs twice"),
        ("<<: {contexts: [{name: a}]}\n", "f: contexts comes from a merge key"),
        ("- a", "f: this is not a kubeconfig"),
        ("a: b\n\tc: d", "f:2:1: gpuform cannot edit this YAML"),
        ("a: 1\n---\nb: 1", "f:2:1: gpuform cannot edit this YAML"),
        ("a: \x07", "f: gpuform cannot edit this YAML"),
    ]:
        with pytest.raises(EngineError) as refused:
            add_contexts(kubeconfig, "training")
        assert message in str(refused.value)


def test_entries_of_others_are_replaced_only_when_allowed() -> None:
    for section in SECTIONS:
        kubeconfig = f"{HEAD}{section}:\n- name: training\n  {section[:-1]}: {{a: hunter2}}\n"
        with pytest.raises(EngineError, match=r"f:4: the \w+ 'training' already exists") as refused:
            add_contexts(kubeconfig, "training")
        assert "gpuform did not write it" in str(refused.value)
        assert "hunter2" not in str(refused.value) + str(refused.value.hint)
        assert "hunter2" not in add_contexts(kubeconfig, "training", replace_foreign=True)
    # Another stack's cluster of that name is somebody else's, too.
    theirs = add_credentials(
        "", "f", [build_credential("training", id_="another")], CredentialOptions()
    )
    ours = build_credential("training")
    other = type(ours)(
        ours.name, type(ours.label)("id", "urn:other", "/elsewhere"), ours.content_by_section
    )
    with pytest.raises(EngineError, match="urn:pulumi:dev"):
        add_credentials(theirs, "f", [other], CredentialOptions())


def test_a_replaced_cluster_takes_the_place_of_the_old_one() -> None:
    kubeconfig = add_contexts(HEAD, "training")
    new = add_credentials(
        kubeconfig, "f", [build_credential("training", id_="new")], CredentialOptions()
    )
    assert {
        name: label.id for name, label in KubeconfigDocument(new, "f").find_labels().items()
    } == {"training": "new"}
    assert remove_named_contexts(new, "training") == HEAD


def test_only_the_label_makes_a_context_gpuforms() -> None:
    kubeconfig = f"{HEAD}contexts:\n- name: training\n  context: {{cluster: training}}\n"
    assert remove_contexts(kubeconfig, "f", lambda *_: True) == kubeconfig


def test_an_updated_credential_keeps_the_users_namespace() -> None:
    kubeconfig = add_contexts("", "training").replace(
        '    user: "training"', '    user: "training"\n    namespace: mine'
    )
    again = add_credentials(
        kubeconfig, "f", [build_credential("training", "another")], CredentialOptions()
    )
    assert KubeconfigDocument(again, "f").get_entries("contexts")["training"]["namespace"] == "mine"


def test_removing_the_current_context_restores_the_former_one() -> None:
    kubeconfig = f"{HEAD}contexts:\n- name: a\n  context: {{}}\ncurrent-context:  'a' # mine\n"
    used = add_contexts(
        add_contexts(kubeconfig, "training", make_current=True), "other", make_current=True
    )
    assert parse_kubeconfig(used)["current-context"] == "other"
    assert remove_named_contexts(used, "other") == add_contexts(
        kubeconfig, "training", make_current=True
    )
    assert remove_named_contexts(used, "training", "other") == kubeconfig
    assert (
        parse_kubeconfig(remove_named_contexts(remove_named_contexts(used, "training"), "other"))[
            "current-context"
        ]
        == ""
    )


kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def read_with_kubectl(*files: Path, args: tuple[str, ...] = ("view", "--raw", "-o", "json")) -> Any:
    done = subprocess.run(
        ["kubectl", "config", *args],
        env={**os.environ, "KUBECONFIG": os.pathsep.join(map(str, files))},
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(done.stdout) if "json" in args else done.stdout


@kubectl
@pytest.mark.parametrize("text", [text for text in HAND_WRITTEN if "odd - comment" not in text])
def test_kubectl_reads_the_edited_file_like_two_separate_files(tmp_path: Path, text: str) -> None:
    theirs, ours, both = (tmp_path / name for name in ("theirs", "ours", "both"))
    theirs.write_bytes(text.encode())
    ours.write_text(add_contexts("", "training", "007"))
    both.write_bytes(add_contexts(text, "training", "007").encode())
    merged, single = read_with_kubectl(theirs, ours), read_with_kubectl(both)

    def without_records(document: Any) -> Any:
        for context in document["contexts"]:
            for extension in context["context"].get("extensions") or ():
                extension["extension"].pop("before", None)
        return document

    assert without_records(single) == without_records(merged)


@kubectl
def test_labels_survive_a_rewrite_by_kubectl(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(add_contexts("", "training"))
    read_with_kubectl(file, args=("set-context", "mine", "--cluster=x"))
    rewritten = file.read_text()
    assert list(KubeconfigDocument(rewritten, "f").find_labels()) == ["training"]
    assert add_contexts(rewritten, "training") == rewritten
    remaining = parse_kubeconfig(remove_named_contexts(rewritten, "training"))
    assert [entry["name"] for entry in remaining["contexts"]] == ["mine"]
    assert not remaining.get("clusters")
    assert not remaining.get("users")
    assert "current-context" not in remaining
