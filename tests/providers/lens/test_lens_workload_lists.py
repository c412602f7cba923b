"""A list of workloads counts only when Lens has shown as many as it says."""

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import NotEnoughEvidence
from gpuform.providers.lens.client import LensClient

from .lens_stand_in import LensStandIn, Step, success, workload


def names(lens: LensStandIn, page_size: int = 2) -> list[str]:
    return [each.name for each in lens.client().list_consumers(page_size)]


def starts(name: str) -> Step:
    return lambda lens: lens.consumers.append(workload(name))


def ends(name: str) -> Step:
    def step(lens: LensStandIn) -> None:
        lens.consumers = [each for each in lens.consumers if each["name"] != name]

    return step


def nothing(_lens: LensStandIn) -> None:
    pass


@pytest.mark.parametrize("data", [[], None])
def test_an_empty_page_of_five_workloads_is_not_an_empty_cluster(data: Any) -> None:
    lens = LensStandIn(total=lambda _page: 5, data=lambda _page, _shown: data)
    with pytest.raises(NotEnoughEvidence, match="shows 0 different workloads, and `total` is 5"):
        names(lens)


@pytest.mark.parametrize("data", [[], None])
def test_an_empty_list_whose_total_is_zero_is_an_empty_cluster(data: Any) -> None:
    assert names(LensStandIn(data=lambda _page, _shown: data)) == []


@pytest.mark.parametrize("total", [None, "2", -1, 1.5, True, {}], ids=repr)
def test_a_list_without_a_total_proves_nothing(total: Any) -> None:
    lens = LensStandIn([workload("a"), workload("b")], total=lambda _page: total)
    with pytest.raises(NotEnoughEvidence, match="page 1 of consumers has no `total` that can be"):
        names(lens)


def test_a_workload_that_moves_up_a_page_is_seen() -> None:
    lens = LensStandIn([workload(each) for each in "abcd"], between=[nothing, ends("a")])
    assert names(lens) == ["b", "c", "d"]


def test_a_workload_that_moves_up_while_another_begins_is_seen() -> None:
    """The total stays four, and four are shown: a, b, d and e. Only c is missing."""
    between = [nothing, lambda lens: (ends("a")(lens), starts("e")(lens))]
    lens = LensStandIn([workload(each) for each in "abcd"], between=between)
    assert names(lens) == ["b", "c", "d", "e"]


def test_two_jobs_of_one_name_without_uid_are_two() -> None:
    job = workload("train", uid="", kind="", namespace="", source="slurm")
    assert names(LensStandIn([job, job])) == ["train", "train"]


def test_jobs_of_one_name_without_uid_on_two_pages_cannot_be_told_apart() -> None:
    job = workload("train", uid="", source="slurm")
    lens = LensStandIn([job, workload("b"), job])
    with pytest.raises(NotEnoughEvidence, match="shows 2 different workloads, and `total` is 3"):
        names(lens)


def test_one_workload_shown_twice_is_not_two() -> None:
    lens = LensStandIn([workload("a"), workload("a")])
    with pytest.raises(NotEnoughEvidence, match="shows 1 different workloads, and `total` is 2"):
        names(lens)


def test_more_workloads_than_the_total_contradict_it() -> None:
    lens = LensStandIn([workload("a"), workload("b")], total=lambda _page: 1)
    with pytest.raises(NotEnoughEvidence, match="shows 2 workloads, and `total` is 1"):
        names(lens)


def test_a_total_that_changes_from_page_to_page_is_read_again_and_refused() -> None:
    totals = iter(range(3, 100))
    lens = LensStandIn([workload(each) for each in "abcdef"], total=lambda _page: next(totals))
    with pytest.raises(NotEnoughEvidence, match="`total` is 9 on page 1 of consumers and 10 on"):
        names(lens)
    assert len(lens.asked) == 8


def test_a_lens_that_caps_its_pages_is_read_to_the_end() -> None:
    lens = LensStandIn([workload(each) for each in "abcde"])

    def capped(request: httpx.Request) -> httpx.Response:
        at = 2 * (int(request.url.params["pageNum"]) - 1)
        return success({"data": lens.consumers[at : at + 2], "total": 5})

    client = LensClient("http://lens.test/api", None, httpx.MockTransport(capped))
    assert [each.name for each in client.list_consumers(100)] == list("abcde")


def test_a_lens_that_answers_every_page_with_the_first_is_refused() -> None:
    lens = LensStandIn(data=lambda _page, _shown: [workload("a")], total=lambda _page: 5)
    with pytest.raises(NotEnoughEvidence, match="shows 1 different workloads"):
        names(lens)


def test_a_course_of_changes_without_an_end_is_refused() -> None:
    names_ = iter(range(10**6))
    churn = [lambda lens: (lens.consumers.pop(0), starts(f"n{next(names_)}")(lens))] * 100
    lens = LensStandIn([workload(each) for each in "abcd"], between=churn)
    with pytest.raises(NotEnoughEvidence, match="change while they are read"):
        names(lens)


events = st.lists(
    st.sampled_from(["nothing", "nothing", "nothing", "start", "end", "swap", "reorder"]),
    max_size=24,
)


@given(number=st.integers(0, 9), happening=events, size=st.integers(1, 4))
def test_whoever_runs_throughout_is_never_missing(
    number: int, happening: list[str], size: int
) -> None:
    """Workloads begin, end and move between any two requests; a list that is believed has all."""
    lens = LensStandIn([workload(f"w{at}") for at in range(number)])
    throughout = {each["name"] for each in lens.consumers}
    count = iter(range(1000))

    def step(kind: str) -> Step:
        def happen(lens: LensStandIn) -> None:
            nonlocal throughout
            if kind in ("end", "swap") and lens.consumers:
                throughout = throughout - {lens.consumers.pop(0)["name"]}
            if kind in ("start", "swap"):
                lens.consumers.append(workload(f"n{next(count)}"))
            if kind == "reorder":
                lens.consumers.reverse()

        return happen

    lens.between = [step(kind) for kind in happening]
    try:
        shown = set(names(lens, size))
    except GpuformError:
        return
    assert throughout <= shown
