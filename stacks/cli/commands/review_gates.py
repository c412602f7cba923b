"""Evaluate the gates of reviewed plans, and publish a review as a comment of its pull request."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuform.providers import permissions
from gpuform.providers.errors import GpuformError
from gpuform.schemas.plan import Plan
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.terminal.screen import read_content
from gpuform.stacks.code_hosts.opening import open_code_host
from gpuform.stacks.code_hosts.place import ReviewFlags, ReviewPlace, find_review_place
from gpuform.stacks.code_hosts.posting import label_pull_request, post_review
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import find_project
from gpuform.stacks.gates.evaluating import GateEvaluator, allow_gates
from gpuform.stacks.gates.file import Gate, read_gates, read_project_gates
from gpuform.stacks.pricing.book import PriceBook
from gpuform.stacks.pricing.planned import add_prices
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.pages import LIMIT, format_code, render_markdown
from gpuform.stacks.review.previews import read_plans


def review_of(
    files: Sequence[str], gates: Path | None, allow: Sequence[str], environ: Mapping[str, str]
) -> Review:
    """The plans of these files, judged: of one stack each, or one file with those of several.

    Raises EngineError.
    """
    read = [read_plans("stdin" if name == "-" else name, read_content(name)) for name in files]
    (first, *others) = read
    if isinstance(first, StacksPlan) and not others:
        allowed = permissions.get_permissions(environ) | permissions.parse_permissions(
            ",".join(allow)
        )
        plans = tuple(judged(first.plans, gates, allow, environ))
        over_all = None if first.gates is None else allow_gates(first.gates, allowed)
        return Review.from_stacks_plan(
            first.model_copy(update={"plans": plans, "gates": over_all}), files[0]
        )
    plans_of_one = []
    for name, plan in zip(files, read, strict=True):
        if isinstance(plan, StacksPlan):
            hint = "review it by itself: it is one plan already"
            raise EngineError(f"{name} is a plan of several stacks", hint=hint)
        plans_of_one.append(plan)
    return Review(list(map(StackFacts, judged(plans_of_one, gates, allow, environ), files)))


def judged(
    plans: Sequence[Plan], file: Path | None, allow: Sequence[str], environ: Mapping[str, str]
) -> list[Plan]:
    """With a file, what its gates say; otherwise what the plans hold already of their own gates,
    or what those of this folder's project say if it is the plan's. Raises EngineError.
    """
    allowed = permissions.get_permissions(environ) | permissions.parse_permissions(",".join(allow))
    if file is not None:
        keeper = GateEvaluator(_read_gates(file), allowed, file.parent)
        return [keeper.evaluate(plan) for plan in plans]
    return [_allow_gates(_by_project(plan), allowed) for plan in plans]


def _read_gates(file: Path) -> Sequence[Gate]:
    if not file.exists():
        raise EngineError(f"there are no gates {file}")
    return read_gates(file, str(file))


def _by_project(plan: Plan) -> Plan:
    """Evaluate the gates of this folder's project, unless the plan has results of gates already."""
    if plan.gates is not None:
        return plan
    try:
        project = find_project(Path.cwd())
    except EngineError:
        return plan
    if project.name != plan.project:
        return plan
    if plan.basis is None and plan.cost is None:
        plan = add_prices(plan, PriceBook.read(project.directory))
    return GateEvaluator(read_project_gates(project.directory), (), project.program).evaluate(plan)


def _allow_gates(plan: Plan, allowed: frozenset[str]) -> Plan:
    if plan.gates is None:
        return plan
    return plan.model_copy(update={"gates": allow_gates(plan.gates, allowed)})


_TOLD = {
    "added": "Comment added",
    "edited": "Comment edited",
    "left": "Comment left as it is: it shows a plan that was made later",
}


def publish_review(review: Review, session: Session, asked: ReviewFlags, *, label: bool) -> None:
    """Post the review as a comment, and report the result on stderr. Raises GpuformError.

    The job summary is written first: it is there also when the code host cannot be reached.
    """
    place = find_review_place(asked, session.environ)
    origin = _describe_origin(place)
    _summarize(render_markdown(review, folded=True) + origin, session)
    if place.pull_request is None:
        raise GpuformError(
            "it is not known which pull request this is: the job was not started by one",
            hint="say it: --pull-request N",
        )
    with open_code_host(place, session.environ) as there:

        def write(room: int) -> str:
            return (
                render_markdown(review, folded=True, limit=min(LIMIT, room) - len(origin)) + origin
            )

        posted = post_review(there, review, write)
        session.screen.warn(f"{_TOLD[posted.outcome]} {posted.comment.url}".rstrip())
        if label:
            session.screen.warn(f"Labelled {label_pull_request(there).label}")


def _describe_origin(place: ReviewPlace) -> str:
    """Return the commit and the job that the review belongs to, as Markdown."""
    parts = [f"for {format_code(place.commit[:12])}"] if place.commit else []
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
