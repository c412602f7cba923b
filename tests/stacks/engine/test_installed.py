"""Test the pip requirement that installs this version of gpuform elsewhere."""

import importlib.metadata
import json

import pytest

from gpuform.stacks.engine.machine import get_pip_requirement


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ({"url": "file:///src/my%20clone", "dir_info": {}}, "/src/my clone[cloud]"),
        ({"url": "file:///w/gpuform-1-py3-none-any.whl"}, "/w/gpuform-1-py3-none-any.whl[cloud]"),
        ({"url": "https://example.org/g.whl"}, "gpuform[cloud] @ https://example.org/g.whl"),
        (None, "gpuform[cloud]"),
    ],
)
def test_the_requirement_names_the_source_of_this_installation(
    monkeypatch: pytest.MonkeyPatch, told: dict[str, object] | None, wanted: str
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return json.dumps(told) if told else None

    monkeypatch.setattr(importlib.metadata, "distribution", lambda _name: Installed())
    assert get_pip_requirement("cloud") == wanted
    assert get_pip_requirement() == wanted.replace("[cloud]", "")
