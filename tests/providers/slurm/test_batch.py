"""Test checks of batch jobs before any request, hostile texts of squeue, and results."""

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuform.providers.errors import GpuformError
from gpuform.providers.slurm import results
from gpuform.providers.slurm.batch import BatchJob, BatchQueue, parse_exit_code
from gpuform.providers.slurm.parsing import SlurmJob, parse_batch_jobs, parse_exit_codes
from gpuform.providers.slurm.processes import LocalCommandRunner
from gpuform.providers.slurm.results import search_result

PATTERN = r"busbw: (\S+)"


def read(*records: str) -> dict[str, SlurmJob]:
    return parse_batch_jobs(
        "".join(f"\x1e{record}\n" for record in records), uid=7, job_names=["a", "b"]
    )


def test_the_newest_job_of_our_user_and_name_counts() -> None:
    assert read(
        "9|7|COMPLETED|w[0-1]|w[0-1]|None|a",
        "10|7|PENDING||w[0-1]|ReqNodeNotAvail, UnavailableNodes:w1|a",
        "11|8|RUNNING|w3|w3|None|a",
        "12|7|RUNNING|w3||None|c",
        "13_[1-9%2]|7|PENDING|||None|b",
        "14+1|7|RUNNING|w3||None|b",
    ) == {"a": SlurmJob("10", "PENDING", ("w0", "w1"), "ReqNodeNotAvail, UnavailableNodes:w1")}


def test_an_empty_output_has_no_jobs() -> None:
    assert parse_batch_jobs("", uid=7, job_names=["a"]) == {}


@pytest.mark.parametrize(
    "text",
    ["squeue: warning\n\x1e1|7|RUNNING|w0||None|a", "\x1e1|7|RUNNING|a", "\x1ex|7|RUNNING|||None|a",
     "\x1e1|root|RUNNING|||None|a", "\x1e1|7|running!|||None|a", "\x1e1|7|RUNNING|w[|||a"],
)  # fmt: skip
def test_an_unexpected_line_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no|no hostlist"):
        parse_batch_jobs(text, uid=7, job_names=["a"])


@given(st.text(st.sampled_from("\x1e|17RUNING\n_[],aw0 "), max_size=80))
def test_any_text_is_parsed_or_raises_value_error(text: str) -> None:
    try:
        runs = parse_batch_jobs(text, uid=7, job_names=["a"])
    except ValueError:
        return
    assert set(runs) <= {"a"}


def test_exit_codes_of_both_formats_are_parsed() -> None:
    assert parse_exit_codes("1   768  \n2   0\n3   9\n4   3:0\n") == {
        "1": "3:0", "2": "0:0", "3": "0:9", "4": "3:0"
    }  # fmt: skip
    with pytest.raises(ValueError, match="is not an exit code"):
        parse_exit_codes("1 N/A\n")


@pytest.mark.parametrize(
    ("state", "ended", "ok"),
    [("PENDING", False, False), ("COMPLETING", False, False), ("SOMETHING_NEW", False, False),
     ("COMPLETED", True, True), ("TIMEOUT", True, False), ("NODE_FAIL", True, False)],
)  # fmt: skip
def test_the_state_decides_whether_a_job_has_ended_and_succeeded(
    state: str, ended: bool, ok: bool
) -> None:
    run = SlurmJob("1", state)
    assert (run.has_ended, run.has_succeeded) == (ended, ok)


@pytest.mark.parametrize(
    "name", ["", "-n", "a b", "a,b", "a\nb", "a/../b", "%j", "$(id)", "a" * 129]
)
def test_an_invalid_job_name_is_refused(name: str) -> None:
    with pytest.raises(GpuformError, match="is not a name of a batch job"):
        BatchJob(name, "#!/bin/sh\n", ["w0"])
    with pytest.raises(GpuformError, match="is not a name of a batch job"):
        BatchQueue(LocalCommandRunner()).read_output(name)


@pytest.mark.parametrize("nodes", [[], ["w0", "w0"], ["w[0-3]"], ["w0,w1"], ["-x"], [""]])
def test_invalid_nodes_are_refused(nodes: list[str]) -> None:
    with pytest.raises(GpuformError, match=r"no node|a node twice|is not the name of a node"):
        BatchJob("a", "#!/bin/sh\n", nodes)


@pytest.mark.parametrize(
    ("script", "why"),
    [("", "does not begin with #!"), ("echo\n", "does not begin with #!"),
     ("#!/bin/sh\r\necho\r\n", "DOS"),
     ("#!/bin/sh\n\0", "NUL"), ("#!/bin/sh\n\ud800", "incomplete"),
     ("#!/bin/sh\n" + "'" * 30_000, "single quotes"),
     ("#!/bin/sh\n" + "x" * 32768, "32778 bytes"), ("#!/bin/sh\n#SBATCH --comment='x\n", "quot"),
     ("#!/bin/sh\n#SBATCH --array=1-3\n", "--array"), ("#!/bin/sh\n#SBATCH --arr 1-3\n", "--arr"),
     ("#!/bin/sh\n\n# x\n#SBATCH -a1-3\n", "-a1-3"), ("#!/bin/sh\n#SBATCH hetjob\n", "hetjob"),
     ("#!/bin/sh\n#SBATCH -M other\n", "-M"), ("#!/bin/sh\n#SBATCH --wait\n", "--wait"),
     ("#!/bin/sh\n#SBATCH --\n", "--")],
)  # fmt: skip
def test_a_script_that_is_not_one_job_is_refused(script: str, why: str) -> None:
    with pytest.raises(GpuformError, match="the script of job a") as caught:
        BatchJob("a", script, ["w0"])
    assert why in str(caught.value)


def test_sbatch_lines_behind_a_command_are_no_options() -> None:
    BatchJob("a", "#!/bin/sh\n#SBATCH --comment=x # --array=1\necho\n#SBATCH --array=1-3\n", ["w0"])


@pytest.mark.parametrize("folder", ["out", "/a%j", "/a\nb", "~/x", "/a\\b"])
def test_an_invalid_output_folder_is_refused(folder: str) -> None:
    with pytest.raises(GpuformError, match="is not a folder"):
        BatchQueue(LocalCommandRunner(), folder=folder)


@pytest.mark.parametrize("job_id", ["", "7_1", "-u", "7 8", "٣"])
def test_an_invalid_job_id_is_not_cancelled(job_id: str) -> None:
    with pytest.raises(GpuformError, match="is not the id of a job"):
        BatchQueue(LocalCommandRunner()).cancel([job_id])


@pytest.mark.parametrize(
    ("output", "code"),
    [("x\n\ngpuform: exit code 0\n", 0), ("gpuform: exit code 137", 137), ("", None),
     ("gpuform: exit code 0\nmore\n", None), ("gpuform: exit code \n", None),
     ("says gpuform: exit code 0\n", None)],
)  # fmt: skip
def test_the_exit_code_is_parsed_from_the_end_of_an_output(output: str, code: int | None) -> None:
    assert parse_exit_code(output) == code


@pytest.mark.slow
@pytest.mark.sampled(1)
@settings(max_examples=25, deadline=None)
@example([487.87, 1e-300])
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4))
def test_the_last_match_is_the_result(figures: list[float]) -> None:
    output = "".join(f"# busbw: {figure!r}\r\nnoise\n" for figure in figures)
    assert search_result(output, PATTERN) == figures[-1]


@settings(max_examples=25, deadline=None)
@given(st.text(max_size=50))
def test_a_result_is_finite_or_none(text: str) -> None:
    result = search_result(f"busbw: {text}", "busbw: (?s:(.*))")
    assert result is None or math.isfinite(result)


@pytest.mark.parametrize("printed", ["nan", "inf", "1e999", "1_000", "1,000", "fast", "٣", "0x10"])
def test_a_match_without_a_finite_number_is_no_result(printed: str) -> None:
    assert search_result(f"busbw: 3\nbusbw: {printed}\n", PATTERN) is None


def test_an_output_without_a_match_has_no_result() -> None:
    assert search_result("", PATTERN) is None
    assert search_result("busbw:\n5", PATTERN) is None
    assert search_result("busbw: 3", r"busbw: (?:(x)|\d)") is None


def test_a_group_called_value_comes_before_the_first() -> None:
    assert search_result("8 GiB at 312.5 1.0", r"(\d+) GiB at (?P<value>[\d.]+)") == 312.5


def test_the_last_match_of_a_line_counts_and_long_lines_are_cut() -> None:
    assert search_result("busbw: 1 busbw: 2", PATTERN) == 2
    assert search_result("busbw: 1\n" + " " * 20_000 + "busbw: 2\n", PATTERN) == 1


@pytest.mark.parametrize("pattern", ["(", "busbw", "(?:x)", "(a){99999999999}", "*"])
def test_an_invalid_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(GpuformError, match=r"regular expression|no group"):
        search_result("busbw: 1", pattern)


def test_a_pattern_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_PATTERN_TIMEOUT_S", 0.2)
    with pytest.raises(GpuformError, match="takes longer than"):
        search_result("a" * 60 + "b", "((a+)+)$")
