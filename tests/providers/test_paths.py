"""Test ids in request paths: each leads to its own object, or the request is not sent."""

from urllib.parse import unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.errors import GpuformError
from gpuform.providers.http import build_path

PIECES = st.sampled_from(["..", ".", "/", "?", "#", "%2e", "%", "\\", ";", ":", "@", "a", "ä", " "])


@given(st.lists(PIECES, min_size=1, max_size=6).map("".join))
def test_the_path_of_an_id_leads_to_its_own_object_or_is_refused(id_: str) -> None:
    """Check the path on the wire, in which the library has resolved dots."""
    try:
        path = build_path(id_)
    except GpuformError:
        assert id_ in (".", "..")
        return
    sent = httpx.URL(f"https://api.test/v1/clusters{path}/stop").raw_path.decode()
    parent, _, last = sent.removesuffix("/stop").rpartition("/")
    assert (parent, unquote(last)) == ("/v1/clusters", id_)


@pytest.mark.parametrize("id_", ["", ".", "..", "a\nb", "\ud800", "a\u202eb", "x" * 300])
def test_an_id_that_cannot_be_in_a_path_is_refused(id_: str) -> None:
    with pytest.raises(GpuformError, match="no request was sent") as refused:
        build_path(id_)
    assert refused.value.message.isprintable()
