"""What a drawing's texts say, read back strictly: every line has to be of a known form."""

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
    """Fails for any line that is not one of the forms that a drawing has."""
    head, *lines = text.splitlines()
    assert _HEAD.fullmatch(head), head
    assert all(map(_DEFAULTS.fullmatch, lines[:3]))
    drawn, open_ = Drawn(), [""]
    points: set[str] = set()
    for line in lines[3:]:
        if found := _OPEN.fullmatch(line):
            drawn.inside[found[1]] = open_[-1]
            open_.append(found[1])
        elif found := _TITLE.fullmatch(line):
            drawn.labels[open_[-1]] = _of_dot(found[1])
        elif found := _NODE.fullmatch(line):
            drawn.labels[found[1]] = _of_dot(found[2])
            drawn.inside[found[1]] = open_[-1]
        elif found := _POINT.fullmatch(line):
            assert found[1] == open_[-1]
            points.add(found[1])
        elif found := _EDGE.fullmatch(line):
            drawn.arrows.add((found[1], found[2]))
        else:
            assert line.strip() == "}", line
            last = open_.pop()
    assert (last, open_) == ("", [])
    assert {key for arrow in drawn.arrows for key in arrow} <= drawn.labels.keys()
    assert points == {k for k in drawn.inside.values() if k.startswith(("n", "s"))}
    return drawn


def _of_dot(label: str) -> str:
    """Graphviz reads entities of HTML after it has read escapes."""
    assert not re.search(r"&(?!amp;)", label), label
    found = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], label)
    return found.replace("&amp;", "&")


_SHAPE = re.compile(r' *(subgraph )?([a-z][0-9]+)\["([^"]*)"\]')
_ARROW = re.compile(r'  ([ns][0-9]+) -->(\|"[^"]*"\|)? ([ns][0-9]+)')
_LOOK = re.compile(r"  (classDef|class) [A-Za-z0-9:#, -]+")


def read_mermaid(text: str) -> Drawn:
    """Fails for any line that is not one of the forms that a drawing has."""
    comment, head, *lines = text.splitlines()
    assert comment.startswith("%% ")
    assert head == "flowchart LR"
    drawn, open_ = Drawn(), [""]
    for line in lines:
        if shape := _SHAPE.fullmatch(line):
            drawn.labels[shape[2]] = _of_mermaid(shape[3])
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


def _of_mermaid(label: str) -> str:
    lines = label.split("<br/>")
    for line in lines:
        assert re.fullmatch(r"([A-Za-z0-9 :_-]|#[0-9]+;)*", line), line
    shown = [re.sub(r"#([0-9]+);", lambda m: chr(int(m[1])), line) for line in lines]
    return "\n".join(shown).replace("\N{SET MINUS}", "\\").replace("\N{RATIO}", ":")
