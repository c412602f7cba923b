"""Names and short lists of names as Slurm has them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes.limits import LAST_RESORT

from gpuform.stacks.topology_export.model import NoTopology
from gpuform.stacks.topology_export.slurm_topology import (
    compress_names,
    is_slurm_name,
    require_slurm_name,
)

HEADS = st.text("ab-.0123456789", min_size=1, max_size=6).filter(lambda t: t[0].isalnum())
NUMBERS = st.one_of(
    st.integers(0, 120).map(str),
    st.integers(0, 120).map("{:03d}".format),
    st.integers(0, 120).map("{:02d}".format),
    st.integers(0, 10**11).map(str),
    st.just(""),
)
NAMES = st.builds("{}{}".format, HEADS, NUMBERS).filter(is_slurm_name)


def expand_names(text: str) -> list[str]:
    """Expand a host list as `man slurm.conf` defines NodeName, without code of gpuform."""
    names = []
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        match = re.fullmatch(r"([^\[]*)\[([^\]]*)\]", part)
        if match is None:
            names.append(part)
            continue
        for range_text in match[2].split(","):
            first, _, last = range_text.partition("-")
            numbers = range(int(first), int(last or first) + 1)
            names += [f"{match[1]}{number:0{len(first)}d}" for number in numbers]
    return names


@given(st.lists(NAMES, min_size=1, max_size=40))
def test_a_list_names_exactly_the_nodes_that_it_was_made_of(names: list[str]) -> None:
    expanded_names = expand_names(compress_names(names))
    assert sorted(expanded_names) == sorted(set(names))
    assert compress_names(reversed(names)) == compress_names(names)


@pytest.fixture(scope="module")
def slurm_conf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the configuration that `scontrol` requires even for expanding names."""
    path = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    path.write_text("ClusterName=training\nSlurmctldHost=localhost\n")
    return path


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("scontrol") is None, reason="needs Slurm's scontrol")
@settings(max_examples=60, deadline=None)
@given(names=st.lists(NAMES, min_size=1, max_size=40))
def test_slurm_itself_reads_the_same_names(slurm_conf: Path, names: list[str]) -> None:
    result = subprocess.run(
        ["scontrol", "show", "hostnames", compress_names(names)],
        env={**os.environ, "SLURM_CONF": str(slurm_conf)},
        capture_output=True,
        text=True,
        check=False,
        timeout=LAST_RESORT,
    )
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.split()) == sorted(set(names))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["train-001"], "train-001"),
        (["train-001", "train-002", "train-003"], "train-[001-003]"),
        (["train-003", "train-001", "train-001"], "train-[001,003]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n09", "n9", "n10"], "n[9,09-10]"),
        (["n99", "n098", "n100", "n099"], "n[99,098-100]"),
        (["rack1-n1", "rack2-n1", "login"], "login,rack1-n1,rack2-n1"),
        (["7", "8"], "7,8"),
        (["n0000000001", "n0000000002"], "n[0000000001-0000000002]"),
    ],
)
def test_numbers_share_a_range(names: list[str], text: str) -> None:
    assert sorted(expand_names(compress_names(names))) == sorted(set(names))
    if "n0000000001" not in names:
        assert compress_names(names) == text


@pytest.mark.parametrize(
    "text",
    ["", "a,b", "a[1-2]", "a b", "a=b", "a#", "-a", "DEFAULT", "all", "a\n", "é", "a" * 65, "a-"],
)
def test_what_slurm_would_read_as_something_else_is_refused(text: str) -> None:
    assert not is_slurm_name(text)
    with pytest.raises(NoTopology, match="not a valid name in Slurm"):
        require_slurm_name(text, "node")
