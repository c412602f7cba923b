"""Read the texts of drawings back strictly: every line must have a known form."""

import re
from dataclasses import dataclass, field


@dataclass
class Drawn:
    """Labels by key, and arrows between keys."""

    labels: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    arrows: set[tuple[str, str]] = field(default_factory=set)


_TEXT = r'"((?:[^"\\\n]|\\["\\n])*)"'
"""A quoted text of DOT, with the escapes that mean a character or the end of a line."""
_HEAD = re.compile(rf"digraph {_TEXT} {{")
_DEFAULTS = re.compile(r'  (graph|node|edge) \[[A-Za-z]+=("[A-Za-z#0-9,]+"|[A-Za-z]+)(, .*)?\]')
_LOOKS = r'(, [a-z]+="#[0-9a-f]{6}")*'
_NODE = re.compile(rf" *([nps][0-9]+) \[label={_TEXT}{_LOOKS}\]")
_POINT = re.compile(r' *([ns][0-9]+) \[shape=point, style=invis, label=""\]')
_OPEN = re.compile(r" *subgraph cluster_([nps][0-9]+) {")
_TITLE = re.compile(rf" *graph \[label={_TEXT}{_LOOKS}\]")
_EDGE = re.compile(
    rf"  ([ns][0-9]+) -> ([ns][0-9]+)( \[(label={_TEXT})?(, )?(ltail=\w+)?(, )?(lhead=\w+)?\])?"
)


def read_dot(text: str) -> Drawn:
    """Read a drawing in DOT. Any line in another form fails."""
    head, *lines = text.splitlines()
    assert _HEAD.fullmatch(head), head
    assert all(map(_DEFAULTS.fullmatch, lines[:3]))
    drawn, open_ = Drawn(), [""]
    points: set[str] = set()
    for line in lines[3:]:
        if match := _OPEN.fullmatch(line):
            drawn.inside[match[1]] = open_[-1]
            open_.append(match[1])
        elif match := _TITLE.fullmatch(line):
            drawn.labels[open_[-1]] = _unescape_dot(match[1])
        elif match := _NODE.fullmatch(line):
            drawn.labels[match[1]] = _unescape_dot(match[2])
            drawn.inside[match[1]] = open_[-1]
        elif match := _POINT.fullmatch(line):
            assert match[1] == open_[-1]
            points.add(match[1])
        elif match := _EDGE.fullmatch(line):
            drawn.arrows.add((match[1], match[2]))
        else:
            assert line.strip() == "}", line
            last = open_.pop()
    assert (last, open_) == ("", [])
    assert {key for arrow in drawn.arrows for key in arrow} <= drawn.labels.keys()
    assert points == {k for k in drawn.inside.values() if k.startswith(("n", "s"))}
    return drawn


def _unescape_dot(label: str) -> str:
    """Undo the escapes of a label and then its HTML entities, in Graphviz's order."""
    assert not re.search(r"&(?!amp;)", label), label
    unescaped = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], label)
    return unescaped.replace("&amp;", "&")


_SHAPE = re.compile(r' *(subgraph )?([a-z][0-9]+)\["([^"]*)"\]')
_ARROW = re.compile(r'  ([ns][0-9]+) -->(\|"[^"]*"\|)? ([ns][0-9]+)')
_LOOK = re.compile(r"  (classDef|class) [A-Za-z0-9:#, -]+")


def read_mermaid(text: str) -> Drawn:
    """Read a drawing in Mermaid. Any line in another form fails."""
    comment, head, *lines = text.splitlines()
    assert comment.startswith("%% ")
    assert head == "flowchart LR"
    drawn, open_ = Drawn(), [""]
    for line in lines:
        if shape := _SHAPE.fullmatch(line):
            drawn.labels[shape[2]] = _unescape_mermaid(shape[3])
            drawn.inside[shape[2]] = open_[-1]
            open_ += [shape[2]] if shape[1] else []
        elif arrow := _ARROW.fullmatch(line):
            drawn.arrows.add((arrow[1], arrow[3]))
        elif line.strip() == "end":
            open_.pop()
        else:
            assert _LOOK.fullmatch(line), line
    assert open_ == [""]
    return drawn


def _unescape_mermaid(label: str) -> str:
    lines = label.split("<br/>")
    for line in lines:
        assert re.fullmatch(r"([A-Za-z0-9 :_-]|#[0-9]+;)*", line), line
    unescaped_lines = [re.sub(r"#([0-9]+);", lambda m: chr(int(m[1])), line) for line in lines]
    return "\n".join(unescaped_lines).replace("\N{SET MINUS}", "\\").replace("\N{RATIO}", ":")
