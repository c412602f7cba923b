"""Test parsing of Slurm's texts: recorded from 22.05, of other versions, and malformed."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuform.providers.slurm.parsing import (
    expand_hostlist,
    parse_jobs,
    parse_nodes,
    parse_running_jobs,
)
from gpuform.schemas.policies.drain import RunningJob

RECORDED = Path(__file__).parent / "recorded"


def read_recording(name: str) -> str:
    return (RECORDED / f"{name}.txt").read_text()


def build_node_block(state: str, *lines: str) -> str:
    return "\n".join(["NodeName=w0 Arch=x86_64 ", f"   State={state} Weight=1", *lines, ""])


def test_recorded_nodes_of_a_real_slurm_are_parsed() -> None:
    nodes = {node.name: node for node in parse_nodes(read_recording("nodes"))}
    assert sorted(nodes) == ["w0", "w1", "w2", "w3", "w4"]
    assert [name for name, node in nodes.items() if node.is_drained] == ["w0", "w2", "w4"]
    assert [name for name, node in nodes.items() if node.is_failed] == ["w4"]
    assert [name for name, node in nodes.items() if node.is_busy] == ["w0", "w1", "w2", "w3"]
    assert nodes["w0"].reason == "gpuform: scale-down of training/dev"
    assert nodes["w1"].reason == ""
    assert nodes["w2"].reason == "fan 3: x=y State=IDLE [sic]"


def test_recorded_jobs_of_a_real_slurm_are_parsed() -> None:
    assert parse_jobs(read_recording("jobs")) == {
        "w0": [RunningJob(id="1", name="pre | train", user="root")],
        "w1": [
            RunningJob(id="1", name="pre | train", user="root"),
            RunningJob(id="4+0", name="wrap", user="root"),
        ],
        "w2": [
            RunningJob(id="2_0", name="wrap", user="root"),
            RunningJob(id="2_1", name="wrap", user="root"),
        ],
        "w3": [
            RunningJob(id="6", name="wrap", user="root"),
            RunningJob(id="4+1", name="wrap", user="root"),
        ],
    }
    assert parse_jobs(read_recording("no_jobs")) == {}


def test_batch_jobs_that_allow_requeueing_can_be_requeued() -> None:
    assert parse_running_jobs(read_recording("ending")) == {
        "1": True,
        "2_0": False,
        "2_1": False,
        "4": True,
    }
    assert parse_running_jobs("7+0 1 0\n7+1 1 1\n") == {"7": False}
    assert parse_running_jobs("") == {}


@pytest.mark.parametrize(
    ("state", "drained", "failed", "busy"),
    [
        ("IDLE", False, False, False),
        ("IDLE+DRAIN", True, False, False),
        ("MIXED+DRAIN", True, False, True),
        ("IDLE+COMPLETING", False, False, True),
        ("IDLE+COMPLETING+DRAIN", True, False, True),
        ("DOWN*", False, True, False),  # until 21.08
        ("DOWN*+DRAIN", True, True, False),
        ("IDLE+NOT_RESPONDING", False, True, False),
        ("ALLOCATED+NOT_RESPONDING+DRAIN", True, True, True),
        ("IDLE+FAIL", True, True, False),
        ("MIXED+FAIL", True, True, True),
        ("IDLE#", False, False, False),
        ("IDLE+PLANNED", False, False, False),
        ("IDLE+CLOUD+POWERED_DOWN", False, False, False),
        ("IDLE+DYNAMIC_NORM+DRAIN", True, False, False),  # as Slinky's nodes register
        ("UNKNOWN+NOT_RESPONDING", False, True, False),
        ("IDLE+INVALID_REG+DRAIN", True, True, False),
    ],
)
def test_states_decide_whether_a_node_is_drained_failed_or_busy(
    state: str, drained: bool, failed: bool, busy: bool
) -> None:
    (node,) = parse_nodes(build_node_block(state))
    assert (node.is_drained, node.is_failed, node.is_busy) == (drained, failed, busy)


def test_nodes_in_state_future_are_left_out() -> None:
    assert parse_nodes(build_node_block("FUTURE")) == []
    assert parse_nodes("No nodes in the system\n") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "slurm_load_partitions: Socket timed out on send/recv operation",
        "NodeName=w0 Arch=x86_64",
        build_node_block("RESTING"),
        build_node_block("IDLE", "   State=DOWN"),  # as a comment of several lines could say
        build_node_block("IDLE", "   Reason=a", "   Reason=b"),
        build_node_block("IDLE") + "\n" + build_node_block("IDLE"),
        build_node_block("IDLE").replace("w0", "w0;x"),
        read_recording("nodes")
        .replace("   State=IDLE", "   Stat"[:3])
        .replace("   State=MIXED", "   "),
    ],
)
def test_an_unexpected_list_of_nodes_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_nodes(text)


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_cut_off_list_of_jobs_is_refused(cut: int) -> None:
    with pytest.raises(ValueError):
        parse_jobs("\x1e12_3|w[0-1]|ada"[:cut])


@pytest.mark.parametrize(
    "text",
    ["12|w0|ada|x", "error\n\x1e12|w0|ada|x", "\x1e12|w0|ada", "\x1ex|w0|ada|y", "\x1e1|w[0|ada|y"],
)
def test_an_unexpected_list_of_jobs_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_jobs(text)


@pytest.mark.parametrize("text", ["x 1 1", "12 1", "12 1 2", "12 1 1 1", "12; 1 1"])
def test_an_unexpected_list_of_running_jobs_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_running_jobs(text)


def test_a_job_name_can_be_any_text() -> None:
    assert parse_jobs("\x1e7|w0|ada|a|b\n8|w1|bob|c\n\x1e9|w1|bob|\n") == {
        "w0": [RunningJob(id="7", name="a|b 8|w1|bob|c", user="ada")],
        "w1": [RunningJob(id="9", name="", user="bob")],
    }


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("", []),
        ("w0", ["w0"]),
        ("w[0-2,7]", ["w0", "w1", "w2", "w7"]),
        ("w[008-011]", ["w008", "w009", "w010", "w011"]),
        ("a,gpu-[1-2].x,b[3]", ["a", "gpu-1.x", "gpu-2.x", "b3"]),
        ("r[1-2]n[3-4]", ["r1n3", "r1n4", "r2n3", "r2n4"]),
    ],
)
def test_hostlists_are_expanded(hostlist: str, names: list[str]) -> None:
    assert expand_hostlist(hostlist) == names


@pytest.mark.parametrize(
    "text", ["w[", "w[]", "w[1-]", "w[2-1]", "w[a-b]", "w0,", ",", "w 0", "w[0-9999999]", "(null)"]
)
def test_an_invalid_hostlist_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        expand_hostlist(text)


@given(st.lists(st.integers(0, 1200), min_size=1, unique=True), st.integers(1, 4))
@example([9, 10], 2)
def test_a_range_is_expanded_to_every_padded_name(numbers: list[int], width: int) -> None:
    written = ",".join(f"{number:0{width}}" for number in numbers)
    assert expand_hostlist(f"w[{written}]") == [f"w{number:0{width}}" for number in numbers]


@given(st.text("w[]0123,-x.", max_size=12))
def test_any_hostlist_is_expanded_or_raises_value_error(text: str) -> None:
    try:
        names = expand_hostlist(text)
    except ValueError:
        return
    assert all(name and "[" not in name for name in names)
