"""Who did something to a stack, from where and by which plan, as people read it."""

from collections.abc import Iterator, Mapping

from gpuform.schemas.visible import visible
from gpuform.stacks.engine.stack import HOST, JOB, PLAN_MADE_AT, PLAN_SEAL, USER

_DIGITS = 12
"""Of a digest, as git and people write it."""


def origin_text(environment: Mapping[str, str], message: str = "") -> str:
    """`ada on laptop, GitHub Actions 1234 (deploy), main 3f2a9c1d0b7e (dirty), plan 81ab...`.

    Empty when nothing is known.
    """
    return visible(", ".join(filter(None, _parts(environment, message))))


def _parts(environment: Mapping[str, str], message: str) -> Iterator[str]:
    told = environment.get
    who, host = told(USER) or told("git.author", ""), told(HOST, "")
    yield f"{who} on {host}" if who and host else who or host
    if system := told("ci.system"):
        number = told("ci.build.number") or told("ci.build.id", "")
        job = f"({told(JOB)})" if told(JOB) else ""
        yield " ".join(filter(None, (system, number, job)))
    if head := told("git.head") or told("ci.pr.headSHA"):
        branch = told("git.headName", "").removeprefix("refs/heads/")
        dirty = "(dirty)" if told("git.dirty") == "true" else ""
        yield " ".join(filter(None, (branch, head[:_DIGITS], dirty)))
    if seal := told(PLAN_SEAL):
        yield f"plan {seal[:_DIGITS]} of {told(PLAN_MADE_AT, '')}".removesuffix(" of ")
    if message:
        yield f'"{message}"'
