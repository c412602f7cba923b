"""What lack of credit has done to a stack: what stopped, what still runs, and what is lost next."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuform.schemas.credit import Credit, CreditState
from gpuform.schemas.notices import Notice, NoticeKind


@dataclass(frozen=True, slots=True)
class Credited:
    """What its platform's lifecycle says of one resource."""

    urn: str
    name: str
    platform: str
    credit: Credit


def credit_notices(found: Iterable[Credited]) -> Iterator[Notice]:
    """Nothing for platforms where nothing has stopped. What is lost next comes last."""
    by_platform: dict[str, list[Credited]] = {}
    for each in found:
        by_platform.setdefault(each.platform, []).append(each)
    for those in by_platform.values():
        if any(each.credit.state is not CreditState.RUNS for each in those):
            yield from _of_account(those)


def _of_account(those: list[Credited]) -> Iterator[Notice]:
    for each in those:
        if each.credit.text:
            yield Notice(
                kind=NoticeKind.CREDIT,
                text=each.credit.text,
                at=each.credit.at,
                urn=each.urn,
                name=each.name,
            )
    # What has stopped is nearer to its end than what still runs.
    nearest = sorted(those, key=lambda each: each.credit.state is CreditState.RUNS)
    lost = [f"{each.name}: {each.credit.next}" for each in nearest if each.credit.next]
    told = f"next without credit: {'; '.join(lost)}. " if lost else ""
    text = f"{told}Add credit to the account, then run `gpuform up` again"
    yield Notice(kind=NoticeKind.CREDIT, text=text)
