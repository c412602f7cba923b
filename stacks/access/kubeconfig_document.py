"""Add and remove entries of a kubeconfig; gpuform's own entries have a label in their extensions.

Block and flow style (JSON), comments and line breaks stay. An edit whose result means anything else
than intended is refused: anchors, tags and merge keys can cause this. kubectl keeps extensions when
it rewrites a file. Entries without a label belong to somebody else.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from gpuform.stacks.access.kubeconfig_editing import (
    CURRENT_CONTEXT,
    HEADER,
    KubeconfigNotEdited,
    KubeconfigSource,
)

FormerValues = dict[str, str | None]
"""The texts behind keys before gpuform filled them, by key; None for keys that did not exist."""

_BOM: Final = "\ufeff"


class KubeconfigDocument:
    """A parsed kubeconfig.

    `file_label` names the file in messages. Every edit returns another document.

    Raises:
        KubeconfigNotEdited: only a person can read or edit the file.
    """

    def __init__(self, text: str, file_label: str) -> None:
        self.text, self.file_label = text, file_label
        self._bom = _BOM if text.startswith(_BOM) else ""
        # The offsets of YAML's nodes count from behind the byte order mark.
        self._source = KubeconfigSource(text[len(self._bom) :], file_label)

    @property
    def content(self) -> dict[str, Any]:
        """Return the content of the kubeconfig file."""
        return self._source.content

    @property
    def current_context(self) -> str:
        """Return the name of the current context, or an empty text."""
        member = self._source.members.get(CURRENT_CONTEXT)
        # The node has the name as written: the parsed content has a boolean for `no`.
        return "" if member is None or member.is_empty else str(member.value.value)

    def get_entries(self, section: str) -> dict[str, Mapping[str, Any]]:
        """Return the entries of a section by name.

        An entry is the object under `cluster`, `context` or `user`; an empty object if that is
        missing. Entries without a name are left out.
        """
        entries: dict[str, Mapping[str, Any]] = {}
        items = self.content.get(section) or ()
        for name, item in zip(self._source.list_names(section), items, strict=True):
            entry = item.get(section.removesuffix("s")) if isinstance(item, dict) else None
            if name is not None:
                entries[name] = entry if isinstance(entry, dict) else {}
        return entries

    def find_labels(self) -> dict[str, "ClusterLabel"]:
        """Return the labels of the contexts written by gpuform, by the context's name."""
        contexts = self.get_entries("contexts").items()
        labels = ((name, ClusterLabel.from_entry(entry)) for name, entry in contexts)
        return {name: label for name, label in labels if label is not None}

    def find_line(self, section: str, name: str) -> int:
        """Return the line of a kubeconfig's entry, counted from 1."""
        return int(self._source.find_entry(section, name)[1].start_mark.line) + 1

    def record_values(self, *keys: str) -> FormerValues:
        """Return the texts behind keys that filling them would lose; None for a missing key.

        A key that already has entries is left out.
        """
        values: FormerValues = {}
        for key in keys:
            member = self._source.members.get(key)
            if member is None:
                values[key] = None
            # A flow list keeps its brackets and takes the entry inside, so that nothing is lost.
            elif key == CURRENT_CONTEXT or (
                member.is_empty and not self._source.is_flow_list(member)
            ):
                values[key] = self._source.body[member.colon : member.end]
        return values

    def add_entry(self, section: str, name: str, entry_content: Mapping[str, Any]) -> Self:
        """Return the document with an entry of a new name."""
        entry = {"name": name, section.removesuffix("s"): entry_content}
        expected_content = {**self.content, section: [entry, *(self.content.get(section) or [])]}
        return self._create_checked(self._source.add_entry(section, entry), expected_content)

    def remove_entry(self, section: str, name: str, former_values: FormerValues) -> Self:
        """Return the document without an entry.

        An emptied section gets its former value, or is removed if it did not exist before; without
        a former value it is an empty list.
        """
        index, _ = self._source.find_entry(section, name)
        remaining_entries = [*self.content[section]]
        del remaining_entries[index]
        if remaining_entries:
            expected_content = {**self.content, section: remaining_entries}
            return self._create_checked(self._source.remove_entry(section, index), expected_content)
        if section in former_values and former_values[section] is None:
            return self._remove_key(section)
        body = self._source.empty_section(section, former_values.get(section))
        return self._create_checked(body, self.content, emptied_section=section)

    def set_current_context(self, name: str) -> Self:
        """Return the document with this current context."""
        return self._set_text(CURRENT_CONTEXT, name)

    def restore_current_context(self, former_value: str | None) -> Self:
        """Return the document with a former text behind `current-context`; None removes the key."""
        if former_value is None:
            return self._remove_key(CURRENT_CONTEXT)
        source, member = self._source, self._source.members[CURRENT_CONTEXT]
        body = source.body[: member.colon] + former_value + source.body[member.end :]
        edited = type(self)(self._bom + body, self.file_label)
        context = edited.content.get(CURRENT_CONTEXT)
        return self._create_checked(body, {**self.content, CURRENT_CONTEXT: context})

    def add_header(self) -> Self:
        """Return the document with added `apiVersion` and `kind`; both must be missing."""
        document = self
        # Each new key is inserted before the others.
        for key in reversed(HEADER):
            document = document._set_text(key, HEADER[key])
        return document

    def remove_header(self, former_values: FormerValues) -> Self:
        """Return the document without the header gpuform added, if nothing else is left."""
        document = self
        added_keys = {key for key in HEADER if key in former_values and former_values[key] is None}
        if added_keys == set(HEADER) == set(self.content):
            for key in HEADER:
                document = document._remove_key(key)
        return document

    def _set_text(self, key: str, value: str) -> Self:
        source, expected_content = self._source, {**self.content, key: value}
        member = source.members.get(key)
        if member is None:
            return self._create_checked(source.add_key(key, value), expected_content)
        # A quoted text of JSON is valid in YAML's block style and in braces.
        value_text = json.dumps(value, ensure_ascii=False)
        body = f"{source.body[: member.colon]} {value_text}{source.body[member.end :]}"
        return self._create_checked(body, expected_content)

    def _remove_key(self, key: str) -> Self:
        expected_content = {name: value for name, value in self.content.items() if name != key}
        return self._create_checked(self._source.remove_key(key), expected_content)

    def _create_checked(
        self, body: str, expected_content: Mapping[str, Any], *, emptied_section: str = ""
    ) -> Self:
        """Return the document of an edited text.

        `emptied_section` must be empty afterwards, in whatever form.

        Raises:
            KubeconfigNotEdited: the text does not have the expected content.
        """
        edited = type(self)(self._bom + body, self.file_label)
        edited_content = dict(edited.content)
        if emptied_section:
            expected_content = {**expected_content, emptied_section: None}
            remaining = edited_content.get(emptied_section) or None
            edited_content = {**edited_content, emptied_section: remaining}
        if edited_content != expected_content:
            raise KubeconfigNotEdited(
                f"{self.file_label}: the file cannot be edited in its present form",
                hint="Nothing was changed. Let kubectl rewrite the file (any `kubectl config "
                "set-...` does), or choose another file with --file.",
            )
        return edited


EXTENSION_NAME: Final = "gpuform"
"""The name of the label's extension: a text without this name has no label."""


@dataclass(frozen=True, slots=True)
class ClusterLabel:
    """The label of an entry: which cluster the entry is for.

    `id` is the platform's id of the cluster, `urn` the URN of its resource, `state` the location of
    its stack's state. `former_values` are the texts that the entry replaced: removing the entry
    restores them.
    """

    id: str
    urn: str
    state: str
    former_values: FormerValues = field(default_factory=dict)

    def is_same_cluster(self, other: "ClusterLabel") -> bool:
        """Return whether both are for one cluster, or for two clusters of one resource in turn."""
        return self.id == other.id or (self.urn, self.state) == (other.urn, other.state)

    @classmethod
    def from_entry(cls, entry: Mapping[str, Any]) -> Self | None:
        """Return the label of an entry, or None if gpuform did not write the entry."""
        for extension in _get_extensions(entry):
            content = extension.get("extension")
            if extension.get("name") == EXTENSION_NAME and isinstance(content, dict):
                id_, urn, state = (str(content.get(key) or "") for key in ("id", "urn", "state"))
                former_values = content.get("before")
                recorded_values = former_values if isinstance(former_values, dict) else {}
                # A person may have edited the label: only texts can be restored.
                valid_values = {
                    str(k): v for k, v in recorded_values.items() if v is None or isinstance(v, str)
                }
                return cls(id_, urn, state, valid_values) if id_ else None
        return None

    def add_to(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return the entry with this label among the extensions."""
        content: dict[str, Any] = {"id": self.id, "urn": self.urn, "state": self.state}
        if self.former_values:
            content["before"] = dict(self.former_values)
        others = [item for item in _get_extensions(entry) if item.get("name") != EXTENSION_NAME]
        return {**entry, "extensions": [*others, {"name": EXTENSION_NAME, "extension": content}]}


def _get_extensions(entry: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the extensions of an entry that are objects, or an empty list if there are none."""
    extensions = entry.get("extensions")
    items = extensions if isinstance(extensions, list) else []
    return [extension for extension in items if isinstance(extension, dict)]
