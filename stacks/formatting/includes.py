"""Which other files a topology file includes."""

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import ScalarNode, SequenceNode
from gpuform.stacks.document.reading import read_text


def included(data: bytes) -> list[str]:
    """The names in its `include`, relative to it; what is wrong there is not told here."""
    root = read_text(data.decode(), "", Diagnostics())
    listed = root.get("include")
    items = listed.items if isinstance(listed, SequenceNode) else ()
    return [item.text for item in items if isinstance(item, ScalarNode) and item.text]
