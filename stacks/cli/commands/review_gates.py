"""Evaluate the gates of reviewed plans, and publish a review as a comment of its pull request.

`gpuform review` calls this module; it calls `stacks/gates` and `stacks/code_hosts`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuform.providers.context import RunContext
from gpuform.providers.errors import GpuformError
from gpuform.schemas.plan import Plan
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.terminal.screen import read_content
from gpuform.stacks.code_hosts.opening import open_code_host
from gpuform.stacks.code_hosts.posting import label_pull_request, post_review
from gpuform.stacks.code_hosts.review_target import ReviewFlags, ReviewTarget, find_review_target
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import find_project
from gpuform.stacks.gates.base_branch import open_project_gates
from gpuform.stacks.gates.evaluating import GateEvaluator, allow_gates
from gpuform.stacks.gates.file import Gate, read_gates, read_project_gates
from gpuform.stacks.pricing.plan_costs import add_prices
from gpuform.stacks.pricing.price_book import PriceBook
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.pages import LIMIT, format_code, render_markdown
from gpuform.stacks.review.previews import read_plans


def build_review(
    files: Sequence[str],
    gates: Path | None,
    allow: Sequence[str],
    environ: Mapping[str, str],
    gates_from: str | None = None,
) -> Review:
    """Read the plans of the files, evaluate the gates, and return the review.

    The gates are those of the file `gates`, of the git revision `gates_from`, or of the plans.

    The files are plans of one stack each, or one multi-stack plan. Gates over all stacks keep their
    results, except that `allow` counts for them.

    Raises:
        FileError: a file cannot be read.
        EngineError: a file is not a plan, or is a multi-stack plan among others.
    """
    read_plans_of_files = [
        read_plans("stdin" if name == "-" else name, read_content(name)) for name in files
    ]
    (first, *others) = read_plans_of_files
    if isinstance(first, StacksPlan) and not others:
        allowed = RunContext(environ).with_permissions(allow).permissions
        plans = tuple(evaluate_gates(first.plans, gates, allow, environ, gates_from))
        workspace_gates = None if first.gates is None else allow_gates(first.gates, allowed)
        return Review.from_stacks_plan(
            first.model_copy(update={"plans": plans, "gates": workspace_gates}), files[0]
        )
    single_stack_plans = []
    for name, plan in zip(files, read_plans_of_files, strict=True):
        if isinstance(plan, StacksPlan):
            hint = "review this file alone"
            raise EngineError(f"{name} is a plan of several stacks", hint=hint)
        single_stack_plans.append(plan)
    evaluated = evaluate_gates(single_stack_plans, gates, allow, environ, gates_from)
    return Review(list(map(StackFacts, evaluated, files)))


def evaluate_gates(
    plans: Sequence[Plan],
    file: Path | None,
    allow: Sequence[str],
    environ: Mapping[str, str],
    gates_from: str | None = None,
) -> list[Plan]:
    """Return the plans with the results of their gates.

    The gates are read from `file`, or from the git revision `gates_from`. Without both, a plan
    keeps the results that it has. A plan without results is then evaluated by the gates of the
    project in the current folder, if it is a plan of this project. A gate that `allow` or the
    environment names does not block.

    Raises:
        EngineError: a file of gates or prices is wrong.
    """
    allowed = RunContext(environ).with_permissions(allow).permissions
    if file is not None:
        evaluator = GateEvaluator(_read_gates(file), allowed, file.parent)
        return [evaluator.evaluate(plan) for plan in plans]
    if gates_from is not None:
        return _evaluate_base_gates(plans, gates_from, allowed)
    return [_allow_gates(_evaluate_project_gates(plan), allowed) for plan in plans]


def _evaluate_base_gates(
    plans: Sequence[Plan], revision: str, allowed: frozenset[str]
) -> list[Plan]:
    """Evaluate the gates that this folder's project has at a git revision.

    Raises:
        EngineError: a plan is of another project, or git cannot show the revision.
    """
    project = find_project(Path.cwd())
    for plan in plans:
        if plan.project != project.name:
            raise EngineError(
                f"the plan of {plan.project}/{plan.stack} is not one of project {project.name}, "
                "whose gates --gates-from reads",
                hint="run the command in the folder of the plan's project",
            )
    with open_project_gates(project, revision) as base:
        evaluator = GateEvaluator(base.gates, allowed, base.program)
        update = {"weakened_gates": base.weakened}
        return [evaluator.evaluate(plan.model_copy(update=update)) for plan in plans]


def _read_gates(file: Path) -> Sequence[Gate]:
    """Read the gates of the file. Raises EngineError, also without the file."""
    if not file.exists():
        raise EngineError(f"the gates file {file} does not exist")
    return read_gates(file, str(file))


def _evaluate_project_gates(plan: Plan) -> Plan:
    """Evaluate the gates of this folder's project, unless the plan has results of gates already.

    The plan of another project, or outside of one, stays as it is.
    """
    if plan.gates is not None:
        return plan
    try:
        project = find_project(Path.cwd())
    except EngineError:
        return plan
    # The gates of another project are not in this folder.
    if project.name != plan.project:
        return plan
    # A preview of the Pulumi CLI has no costs, which gates may limit.
    if plan.basis is None and plan.cost is None:
        plan = add_prices(plan, PriceBook.read(project.directory))
    return GateEvaluator(read_project_gates(project.directory), (), project.program).evaluate(plan)


def _allow_gates(plan: Plan, allowed: frozenset[str]) -> Plan:
    """Return the plan with the permissions in `allowed` applied to the plan's gates, if any."""
    if plan.gates is None:
        return plan
    return plan.model_copy(update={"gates": allow_gates(plan.gates, allowed)})


_POST_MESSAGES = {
    "added": "Added a comment",
    "edited": "Edited the comment",
    "left": "Left the comment unchanged: it shows a newer plan",
}


def publish_review(
    review: Review, session: Session, review_flags: ReviewFlags, *, label: bool
) -> None:
    """Post the review as a comment, and report the result on stderr.

    The job summary is written first: it is there also when the code host cannot be reached.

    Raises:
        GpuformError: the pull request is not known, or the code host refused a request.
    """
    review_place = find_review_target(review_flags, session.environ)
    # Kept out of the limit: the comment always says which commit was planned.
    origin = _describe_origin(review_place)
    _write_job_summary(render_markdown(review, folded=True) + origin, session)
    if review_place.pull_request is None:
        raise GpuformError(
            "cannot find the pull request: no pull request started this job",
            hint="pass it: --pull-request N",
        )
    with open_code_host(review_place, session.environ) as code_host:

        def render(limit: int) -> str:
            return (
                render_markdown(review, folded=True, limit=min(LIMIT, limit) - len(origin)) + origin
            )

        posted = post_review(code_host, review, render)
        session.screen.warn(f"{_POST_MESSAGES[posted.outcome]} {posted.comment.url}".rstrip())
        if label:
            session.screen.warn(f"Labelled {label_pull_request(code_host).label}")


def _describe_origin(review_place: ReviewTarget) -> str:
    """Return the commit and the job of the review as Markdown, or an empty text."""
    parts = [f"for {format_code(review_place.commit[:12])}"] if review_place.commit else []
    parts += [f"by [this job]({review_place.run_url})"] if review_place.run_url else []
    return f"\nPlanned {' '.join(parts)}.\n" if parts else ""


def _write_job_summary(markdown: str, session: Session) -> None:
    """Append the text to GitHub's job summary, if the job has one; a failure is only a warning."""
    path = session.environ.get("GITHUB_STEP_SUMMARY")
    # Set by GitHub alone: other CI systems have no summary of a job.
    if not path:
        return
    try:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(markdown + "\n")
    except OSError as error:
        session.screen.warn(f"warning: the job's summary cannot be written: {error.strerror}")
