"""Hypothesis strategies of kubeconfigs as people and tools write them, and credentials for them."""

import json
from typing import Any

import yaml
from hypothesis import strategies as st

from gpuform.stacks.access.kubeconfig_document import ClusterLabel
from gpuform.stacks.access.kubeconfig_files import Credential

GPUFORM_NAMES = ("training", "prod/eu-1", "007", "träin")
"""Names of entries that gpuform writes; `documents` draws other names."""

_TEXTS = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=12
)
_NAMES = st.sampled_from(["a", "minikube", "no", "1e3", "dev cluster", "arn:aws:eks:x:y/z"])
_LITERALS = st.sampled_from(["~", "null", "[]", "", "&empty []"])


def build_credential(name: str, token: str = "t0ken", id_: str = "") -> Credential:
    mark = ClusterLabel(
        id_ or f"id-{name}", f"urn:pulumi:dev::demo::together:Cluster::{name}", "/state"
    )
    cluster = {"server": "https://k8s.example:6443", "certificate-authority-data": "Zm9v" * 3}
    entries = {
        "clusters": cluster,
        "users": {"token": token},
        "contexts": {"cluster": name, "user": name},
    }
    return Credential(name, mark, entries)


@st.composite
def kubeconfig_documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the content of a kubeconfig; a section may be empty, absent or null."""
    document: dict[str, Any] = {"apiVersion": "v1", "kind": "Config"}
    for section, part in (("clusters", "cluster"), ("contexts", "context"), ("users", "user")):
        names = draw(st.lists(_NAMES, unique=True, max_size=3))
        entries = [{"name": name, part: {"x": draw(_TEXTS), "y": ["no"]}} for name in names]
        if entries or draw(st.booleans()):
            document[section] = entries
    if draw(st.booleans()):
        document["current-context"] = draw(st.sampled_from(["", "a", "gone"]))
    if draw(st.booleans()):
        document["preferences"] = {}
    keys = draw(st.permutations(list(document)))
    return {key: document[key] for key in keys}


@st.composite
def kubeconfig_texts(draw: st.DrawFn) -> str:
    """Draw a kubeconfig as text: JSON or YAML, with comments, odd spaces and line breaks."""
    document = draw(kubeconfig_documents())
    if draw(st.integers(0, 3)) == 0:
        indent = draw(st.sampled_from([None, 2, "\t"]))
        return json.dumps(document, indent=indent, ensure_ascii=draw(st.booleans()))
    flow = draw(st.sampled_from([False, None]))
    dumped = yaml.safe_dump(document, sort_keys=False, default_flow_style=flow, allow_unicode=True)
    lines = []
    for line in dumped.splitlines():
        key, _, rest = line.partition(": ")
        if rest == "[]" and not line.startswith((" ", "-")):
            line = f"{key}: {draw(_LITERALS).replace('&', f'&{key}-')}".rstrip()  # noqa: PLW2901 - as written by hand
        is_top = not line.startswith((" ", "-"))
        if is_top and draw(st.integers(0, 4)) == 0:
            lines.append(draw(st.sampled_from(["# - a comment", "", "#"])))
        lines.append(line + (draw(st.sampled_from(["", "  # why", " "])) if is_top else ""))
    lead = draw(st.sampled_from(["", "\ufeff", "# my clusters\n", "---\n"]))
    end = draw(st.sampled_from(["", "\n", "\n\n# the end", "\n...\n"]))
    return (lead + "\n".join(lines) + end).replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
