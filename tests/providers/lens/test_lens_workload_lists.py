"""Test that a list of workloads counts only if Lens returned as many as it announces."""

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import NotEnoughEvidence
from gpuform.providers.lens.client import LensClient

from .lens_stand_in import LensStandIn, Step, build_success, build_workload


def list_names(lens: LensStandIn, page_size: int = 2) -> list[str]:
    return [consumer.name for consumer in lens.client().list_consumers(page_size)]


def create_start(name: str) -> Step:
    return lambda lens: lens.consumers.append(build_workload(name))


def create_end(name: str) -> Step:
    def step(lens: LensStandIn) -> None:
        lens.consumers = [consumer for consumer in lens.consumers if consumer["name"] != name]

    return step


def do_nothing(_lens: LensStandIn) -> None:
    pass


@pytest.mark.parametrize("data", [[], None])
def test_an_empty_page_with_a_total_of_five_is_no_empty_cluster(data: Any) -> None:
    lens = LensStandIn(total=lambda _page: 5, data=lambda _page, _shown: data)
    with pytest.raises(NotEnoughEvidence, match="shows 0 different workloads, but `total` is 5"):
        list_names(lens)


@pytest.mark.parametrize("data", [[], None])
def test_an_empty_list_whose_total_is_zero_is_an_empty_cluster(data: Any) -> None:
    assert list_names(LensStandIn(data=lambda _page, _shown: data)) == []


@pytest.mark.parametrize("total", [None, "2", -1, 1.5, True, {}], ids=repr)
def test_a_list_without_a_total_is_not_accepted(total: Any) -> None:
    lens = LensStandIn([build_workload("a"), build_workload("b")], total=lambda _page: total)
    with pytest.raises(NotEnoughEvidence, match="page 1 of consumers has no valid `total`"):
        list_names(lens)


def test_a_workload_that_moves_to_an_earlier_page_is_not_missed() -> None:
    lens = LensStandIn(
        [build_workload(name) for name in "abcd"], between=[do_nothing, create_end("a")]
    )
    assert list_names(lens) == ["b", "c", "d"]


def test_a_workload_that_moves_while_another_starts_is_not_missed() -> None:
    """The total stays four and the pages show a, b, d and e: only c is missing."""
    between = [do_nothing, lambda lens: (create_end("a")(lens), create_start("e")(lens))]
    lens = LensStandIn([build_workload(name) for name in "abcd"], between=between)
    assert list_names(lens) == ["b", "c", "d", "e"]


def test_two_jobs_of_one_name_without_uid_are_two() -> None:
    job = build_workload("train", uid="", kind="", namespace="", source="slurm")
    assert list_names(LensStandIn([job, job])) == ["train", "train"]


def test_jobs_of_one_name_without_uid_on_two_pages_cannot_be_told_apart() -> None:
    job = build_workload("train", uid="", source="slurm")
    lens = LensStandIn([job, build_workload("b"), job])
    with pytest.raises(NotEnoughEvidence, match="shows 2 different workloads, but `total` is 3"):
        list_names(lens)


def test_one_workload_shown_twice_is_not_two() -> None:
    lens = LensStandIn([build_workload("a"), build_workload("a")])
    with pytest.raises(NotEnoughEvidence, match="shows 1 different workloads, but `total` is 2"):
        list_names(lens)


def test_more_workloads_than_the_total_are_refused() -> None:
    lens = LensStandIn([build_workload("a"), build_workload("b")], total=lambda _page: 1)
    with pytest.raises(NotEnoughEvidence, match="shows 2 workloads, but `total` is 1"):
        list_names(lens)


def test_a_total_that_changes_between_pages_is_read_again_then_refused() -> None:
    totals = iter(range(3, 100))
    lens = LensStandIn(
        [build_workload(name) for name in "abcdef"], total=lambda _page: next(totals)
    )
    with pytest.raises(NotEnoughEvidence, match="`total` is 9 on page 1 of consumers and 10 on"):
        list_names(lens)
    assert len(lens.asked) == 8


def test_capped_pages_are_read_to_the_end() -> None:
    lens = LensStandIn([build_workload(name) for name in "abcde"])

    def capped(request: httpx.Request) -> httpx.Response:
        at = 2 * (int(request.url.params["pageNum"]) - 1)
        return build_success({"data": lens.consumers[at : at + 2], "total": 5})

    client = LensClient("http://lens.test/api", None, httpx.MockTransport(capped))
    assert [name.name for name in client.list_consumers(100)] == list("abcde")


def test_a_repeated_first_page_is_refused() -> None:
    lens = LensStandIn(data=lambda _page, _shown: [build_workload("a")], total=lambda _page: 5)
    with pytest.raises(NotEnoughEvidence, match="shows 1 different workloads"):
        list_names(lens)


def test_a_list_that_never_stops_changing_is_refused() -> None:
    names_ = iter(range(10**6))
    churn = [lambda lens: (lens.consumers.pop(0), create_start(f"n{next(names_)}")(lens))] * 100
    lens = LensStandIn([build_workload(name) for name in "abcd"], between=churn)
    with pytest.raises(NotEnoughEvidence, match="change while gpuform reads the pages"):
        list_names(lens)


events = st.lists(
    st.sampled_from(["nothing", "nothing", "nothing", "start", "end", "swap", "reorder"]),
    max_size=24,
)


@given(number=st.integers(0, 9), happening=events, size=st.integers(1, 4))
def test_a_workload_that_runs_throughout_is_never_missing(
    number: int, happening: list[str], size: int
) -> None:
    """Start, end and move workloads between requests: an accepted list has the constant ones."""
    lens = LensStandIn([build_workload(f"w{at}") for at in range(number)])
    throughout = {consumer["name"] for consumer in lens.consumers}
    count = iter(range(1000))

    def step(kind: str) -> Step:
        def apply_step(lens: LensStandIn) -> None:
            nonlocal throughout
            if kind in ("end", "swap") and lens.consumers:
                throughout = throughout - {lens.consumers.pop(0)["name"]}
            if kind in ("start", "swap"):
                lens.consumers.append(build_workload(f"n{next(count)}"))
            if kind == "reorder":
                lens.consumers.reverse()

        return apply_step

    lens.between = [step(kind) for kind in happening]
    try:
        listed = set(list_names(lens, size))
    except GpuformError:
        return
    assert throughout <= listed
