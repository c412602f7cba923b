"""Which other files a topology file includes."""

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, ScalarNode, SequenceNode
from gpuform.stacks.document.reading import read_text


def included(data: bytes) -> list[str]:
    """The names in its `include`, relative to it, modules among them.

    What is wrong there is not told here.
    """
    root = read_text(data.decode(), "", Diagnostics())
    listed = root.get("include")
    items = listed.items if isinstance(listed, SequenceNode) else (listed,)
    names = (item.get("file") if isinstance(item, MappingNode) else item for item in items)
    return [name.text for name in names if isinstance(name, ScalarNode) and name.text]
