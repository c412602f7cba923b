"""What is gpuform's in a kubeconfig comes and goes, and nothing else changes by a byte."""

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

from gpuform.stacks.access.kubeconfig import (
    CredentialOptions,
    marked,
    with_credentials,
    without_contexts,
)
from gpuform.stacks.access.kubeconfig_source import SECTIONS
from gpuform.stacks.access.kubeconfig_text import KubeconfigText
from gpuform.stacks.engine.errors import EngineError

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


def put(text: str, *names: str, **wanted: bool) -> str:
    return with_credentials(
        text, "f", [build_credential(name) for name in names], CredentialOptions(**wanted)
    )


def take(text: str, *names: str) -> str:
    return without_contexts(text, "f", lambda name, _: name in names)


def meaning(text: str) -> Any:
    return yaml.safe_load(text.removeprefix("\ufeff").replace("\t", " ")) or {}


NAMES = st.lists(st.sampled_from(GPUFORM_NAMES), unique=True, min_size=1, max_size=2)


@settings(max_examples=15)
@given(kubeconfig_texts(), NAMES, st.booleans())
def test_putting_in_and_taking_out_leaves_every_byte(
    text: str, names: list[str], use: bool
) -> None:
    leaves_every_byte(text, names, use)


@pytest.mark.slow
@settings(max_examples=150)
@given(kubeconfig_texts(), NAMES, st.booleans())
def test_the_same_of_many_more(text: str, names: list[str], use: bool) -> None:
    leaves_every_byte(text, names, use)


def leaves_every_byte(text: str, names: list[str], use: bool) -> None:
    both = put(text, *names, use=use)
    assert set(marked(both, "f")) == set(names)
    assert put(both, *names, use=use) == both or use
    before, after = meaning(text), meaning(both)
    for section in SECTIONS:
        others = [each for each in after[section] if each["name"] not in names]
        assert others == (before.get(section) or [])
        assert len(after[section]) == len(others) + len(names)
    kept = {
        key: value for key, value in before.items() if key not in (*SECTIONS, "current-context")
    }
    assert kept.items() <= after.items()
    if before.get("current-context") and not use:
        assert after["current-context"] == before["current-context"]
    else:
        assert after["current-context"] in names
    # A current context that is not there is nothing to come back to.
    dangles = use and before.get("current-context") not in (
        None, "", *(each["name"] for each in before.get("contexts") or ())
    )  # fmt: skip
    if dangles:
        assert meaning(take(both, *names)) == {**before, "current-context": ""}
    else:
        assert take(both, *names) == text


@pytest.mark.slow
@pytest.mark.parametrize("text", HAND_WRITTEN)
def test_texts_of_all_kinds_come_back(text: str) -> None:
    both = put(text, "training", "other")
    assert take(both, "training", "other") == text
    assert take(take(both, "other"), "training") == text


@settings(max_examples=15)
@given(kubeconfig_texts())
def test_an_update_is_in_the_place_of_the_old_one(text: str) -> None:
    old = put(text, "training")
    new = with_credentials(old, "f", [build_credential("training", "another")], CredentialOptions())
    assert new == old.replace("t0ken", "another")
    assert take(new, "training") == text


def test_what_only_a_person_can_edit_is_refused() -> None:
    for text, message in [
        ("contexts: 3", "f:1:1: contexts is not a list"),
        ("a: &a []\ncontexts: *a\n", "f:2:1: contexts is an alias"),
        ("contexts: []\ncontexts: []\n", "f:2:1: contexts is there twice"),
        ("<<: {contexts: [{name: a}]}\n", "f: contexts comes with a merge key"),
        ("- a", "f: this is no kubeconfig"),
        ("a: b\n\tc: d", "f:2:1: this is not YAML"),
        ("a: 1\n---\nb: 1", "f:2:1: this is not YAML"),
        ("a: \x07", "f: this is not YAML"),
    ]:
        with pytest.raises(EngineError) as refused:
            put(text, "training")
        assert message in str(refused.value)


def test_a_name_that_is_taken_is_refused_or_replaced_by_force() -> None:
    for section in SECTIONS:
        text = f"{HEAD}{section}:\n- name: training\n  {section[:-1]}: {{a: hunter2}}\n"
        with pytest.raises(EngineError, match=r"f:4: there is a \w+ 'training' already") as refused:
            put(text, "training")
        assert "not gpuform's" in str(refused.value)
        assert "hunter2" not in str(refused.value) + str(refused.value.hint)
        assert "hunter2" not in put(text, "training", force=True)
    # Another stack's cluster of that name is somebody else's, too.
    theirs = with_credentials(
        "", "f", [build_credential("training", id_="another")], CredentialOptions()
    )
    ours = build_credential("training")
    other = type(ours)(ours.name, type(ours.mark)("id", "urn:other", "/elsewhere"), ours.held)
    with pytest.raises(EngineError, match="urn:pulumi:dev"):
        with_credentials(theirs, "f", [other], CredentialOptions())


def test_a_replaced_cluster_takes_the_place_of_the_old_one() -> None:
    text = put(HEAD, "training")
    new = with_credentials(
        text, "f", [build_credential("training", id_="new")], CredentialOptions()
    )
    assert {name: mark.id for name, mark in marked(new, "f").items()} == {"training": "new"}
    assert take(new, "training") == HEAD


def test_a_mark_alone_makes_a_context_ours() -> None:
    text = f"{HEAD}contexts:\n- name: training\n  context: {{cluster: training}}\n"
    assert without_contexts(text, "f", lambda *_: True) == text


def test_the_namespace_that_was_chosen_is_kept() -> None:
    text = put("", "training").replace(
        '    user: "training"', '    user: "training"\n    namespace: mine'
    )
    again = with_credentials(
        text, "f", [build_credential("training", "another")], CredentialOptions()
    )
    assert KubeconfigText(again, "f").entries("contexts")["training"]["namespace"] == "mine"


def test_the_current_context_goes_back_to_what_it_was() -> None:
    text = f"{HEAD}contexts:\n- name: a\n  context: {{}}\ncurrent-context:  'a' # mine\n"
    used = put(put(text, "training", use=True), "other", use=True)
    assert meaning(used)["current-context"] == "other"
    assert take(used, "other") == put(text, "training", use=True)
    assert take(used, "training", "other") == text
    assert meaning(take(take(used, "training"), "other"))["current-context"] == ""


kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


def seen_by_kubectl(*files: Path, args: tuple[str, ...] = ("view", "--raw", "-o", "json")) -> Any:
    done = subprocess.run(
        ["kubectl", "config", *args],
        env={**os.environ, "KUBECONFIG": os.pathsep.join(map(str, files))},
        capture_output=True,
        check=True,
        text=True,
    )
    return json.loads(done.stdout) if "json" in args else done.stdout


@kubectl
@pytest.mark.parametrize("text", [t for t in HAND_WRITTEN if "odd - comment" not in t])
def test_kubectl_sees_what_it_sees_of_two_files(tmp_path: Path, text: str) -> None:
    theirs, ours, both = (tmp_path / name for name in ("theirs", "ours", "both"))
    theirs.write_bytes(text.encode())
    ours.write_text(put("", "training", "007"))
    both.write_bytes(put(text, "training", "007").encode())
    merged, one = seen_by_kubectl(theirs, ours), seen_by_kubectl(both)

    def without_records(document: Any) -> Any:
        for context in document["contexts"]:
            for each in context["context"].get("extensions") or ():
                each["extension"].pop("before", None)
        return document

    assert without_records(one) == without_records(merged)


@kubectl
def test_what_kubectl_writes_anew_is_still_ours(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(put("", "training"))
    seen_by_kubectl(file, args=("set-context", "mine", "--cluster=x"))
    text = file.read_text()
    assert list(marked(text, "f")) == ["training"]
    assert put(text, "training") == text
    left = meaning(take(text, "training"))
    assert [each["name"] for each in left["contexts"]] == ["mine"]
    assert not left.get("clusters")
    assert not left.get("users")
    assert "current-context" not in left
