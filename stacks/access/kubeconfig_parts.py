"""The text of a kubeconfig, read: what it says, and where its parts are."""

import json
from dataclasses import dataclass
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

from gpuform.stacks.engine.errors import EngineError

SECTIONS: Final = ("clusters", "contexts", "users")
CURRENT: Final = "current-context"
HEAD: Final[dict[str, str]] = {"apiVersion": "v1", "kind": "Config"}

_KIND_OF: Final = dict.fromkeys((CURRENT, *HEAD), "a text")
_NULL: Final = "tag:yaml.org,2002:null"
_LOADERS: Final[tuple[Any, ...]] = (getattr(yaml, "CSafeLoader", yaml.SafeLoader), yaml.SafeLoader)
"""The fast one, and the one that knows all of JSON's escapes."""


class NotEdited(EngineError):
    """A file that only a person can edit."""

    page = "guides/access"


@dataclass(frozen=True, slots=True)
class Pair:
    """A top-level member; `colon` is where its value's part of the text begins."""

    key: Node
    value: Node
    colon: int

    @property
    def end(self) -> int:
        return max(self.colon, int(self.value.end_mark.index))

    @property
    def is_empty(self) -> bool:
        if isinstance(self.value, SequenceNode):
            return not self.value.value
        return self.value.tag == _NULL or self.value.value == ""


class Parts:
    """A text without its byte order mark, read. `where` names it in messages.

    `meaning` is what it says, `pairs` its members that matter here, by their names.
    """

    def __init__(self, body: str, where: str) -> None:
        self.body, self.where = body, where
        self.root, self.meaning = self._read()
        self.pairs = self._members()

    def _read(self) -> tuple[MappingNode | None, dict[str, Any]]:
        readable = self.body
        if "\t" in readable and _is_json(readable):
            readable = readable.replace("\t", " ")  # YAML wants no tabs between JSON's parts
        try:
            root, members, meaning = _parsed(readable)
        except yaml.MarkedYAMLError as error:
            raise NotEdited(
                f"{_place(self.where, error.problem_mark)}: this is not YAML that can be edited: "
                f"{error.problem or error.context}"
            ) from None
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            kind = type(error).__name__
            raise NotEdited(f"{self.where}: this is not YAML that can be edited ({kind})") from None
        if root is None or meaning is None:
            return None, {}
        if not isinstance(root, MappingNode) or not isinstance(meaning, dict):
            raise NotEdited(f"{self.where}: this is no kubeconfig: it does not hold an object")
        root.value = members
        return root, meaning

    def _members(self) -> dict[str, Pair]:
        found: dict[str, Pair] = {}
        for key, value in self.root.value if self.root else ():
            name = str(key.value)
            if name not in (*SECTIONS, CURRENT, *HEAD):
                continue
            if name in found:
                raise self.problem(f"{name} is there twice", key)
            colon = self.body.index(":", key.end_mark.index) + 1
            pair = found[name] = Pair(key, value, colon)
            if value.end_mark.index < colon:
                raise self.problem(f"{name} is an alias of something else", key)
            if not pair.is_empty and isinstance(value, SequenceNode) != (name in SECTIONS):
                raise self.problem(f"{name} is not {_KIND_OF.get(name, 'a list')}", key)
        for name in (*SECTIONS, CURRENT):
            if self.meaning.get(name) and name not in found:
                raise NotEdited(f"{self.where}: {name} comes with a merge key: write it out")
        return found

    def names(self, section: str) -> list[str | None]:
        """Those of its entries, as they are written: `no` and `007` are names, too."""
        pair = self.pairs.get(section)
        items = pair.value.value if pair and not pair.is_empty else []
        found: list[str | None] = []
        for item in items if isinstance(items, list) else ():
            members = item.value if isinstance(item, MappingNode) else ()
            found.append(next((str(v.value) for k, v in members if k.value == "name"), None))
        return found

    def problem(self, message: str, node: Node) -> NotEdited:
        return NotEdited(
            f"{_place(self.where, node.start_mark)}: {message}",
            hint="Nothing was changed. Correct the file, or choose another one with --file.",
        )


def _parsed(text: str) -> tuple[Node | None, list[Any], Any]:
    """The root, its members and what they mean. Raises what YAML's loaders raise."""
    for kind in _LOADERS:
        loader = kind(text)
        try:
            root = loader.get_single_node()
            # Merge keys are gone from a node once it is constructed.
            members = list(root.value) if isinstance(root, MappingNode) else []
            return root, members, None if root is None else loader.construct_document(root)
        except yaml.YAMLError:
            if kind is yaml.SafeLoader:
                raise
    raise AssertionError("the last loader answers or raises")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _place(where: str, mark: Any) -> str:
    return f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
