"""The pictures show what a run prints, and are drawings that stand alone."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from documentation import pictures
from documentation.comment import DARK, LIGHT, draw_comment


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_pictures_are_current() -> None:
    script = Path(pictures.__file__)
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("path", sorted(pictures.FOLDER.iterdir()), ids=lambda path: path.name)
def test_a_picture_loads_nothing_from_elsewhere(path: Path) -> None:
    drawing = ET.fromstring(path.read_text())
    assert drawing.tag.endswith("svg")
    linked = [
        element for element in drawing.iter() if any("href" in name for name in element.attrib)
    ]
    assert not linked
    assert "@import" not in path.read_text()
    assert "url(http" not in path.read_text()


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_any_comment_can_be_drawn(colours) -> None:
    comment = "# A `<b>` & **bold " + "word " * 60 + "**\n\n```diff\n- <x> & y\n```\n"
    drawing = ET.fromstring(draw_comment(comment, colours))
    words = "".join(drawing.itertext())
    assert words.count("word") == 60
    assert "- <x> & y" in words
