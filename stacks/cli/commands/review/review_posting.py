"""`gpuform review --post`: a review as a comment, a label and the job's summary."""

from pathlib import Path

from gpuform.providers.errors import GpuformError
from gpuform.stacks.cli.session import Session
from gpuform.stacks.code_hosts.asked import Asked
from gpuform.stacks.code_hosts.opening import opened
from gpuform.stacks.code_hosts.place import ReviewPlace, place_of
from gpuform.stacks.code_hosts.posting import post, set_label
from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.pages import LIMIT, code, markdown

_TOLD = {
    "added": "Comment added",
    "edited": "Comment edited",
    "left": "Comment left as it is: it shows a plan that was made later",
}


def post_review(review: Review, session: Session, asked: Asked, *, label: bool) -> None:
    """Posts it and says on stderr what was done. Raises GpuformError.

    The summary is written first: it is there also when the forge cannot be reached.
    """
    place = place_of(asked, session.environ)
    origin = _origin(place)
    _summarize(markdown(review, folded=True) + origin, session)
    if place.number is None:
        raise GpuformError(
            "it is not known which pull request this is: the job was not started by one",
            hint="say it: --pull-request N",
        )
    with opened(place, session.environ) as there:

        def write(room: int) -> str:
            return markdown(review, folded=True, limit=min(LIMIT, room) - len(origin)) + origin

        posted = post(there, review, write)
        session.screen.warn(f"{_TOLD[posted.outcome]} {posted.comment.url}".rstrip())
        if label:
            session.screen.warn(f"Labelled {set_label(there).label}")


def _origin(place: ReviewPlace) -> str:
    """For whom and by which job it was planned."""
    parts = [f"for {code(place.commit[:12])}"] if place.commit else []
    parts += [f"by [this job]({place.run_url})"] if place.run_url else []
    return f"\nPlanned {' '.join(parts)}.\n" if parts else ""


def _summarize(text: str, session: Session) -> None:
    path = session.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        session.screen.warn(f"warning: the job's summary cannot be written: {error.strerror}")
