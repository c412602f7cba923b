"""`gpuform stack output`: what the stack's program exported."""

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.opening import workspace_of
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.operations.opening.selecting import passphrase_of
from gpuform.stacks.review.outputs_text import outputs_lines, shown


@click.command()
@click.argument("name", required=False)
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of text.")
@click.option("--show-secrets", is_flag=True, help="Show secret values in the clear.")
@stack_flags
def output(name: str | None, as_json: bool, show_secrets: bool) -> None:
    """Show the stack's outputs, or the one named.

    A single text is printed as it is, ready for a file.

    \b
    Examples:
      gpuform stack output
      gpuform stack output kubeconfig --show-secrets > kubeconfig.yaml
    """
    with session() as current:
        workspace = workspace_of(current, runs_program=False)
        opened = workspace.open(
            current.stack, passphrase_of(workspace, current.screen.passphrase())
        )
        outputs: PropertyMap = next(
            (r.outputs for r in opened.snapshot.resources if r.type == STACK_TYPE), {}
        )
        if name is None:
            _print_outputs(current, outputs, as_json=as_json, show_secrets=show_secrets)
            return
        if name not in outputs:
            known = f"its outputs: {', '.join(sorted(outputs))}" if outputs else "it has none yet"
            raise EngineError(f"stack '{opened.name}' has no output '{name}'", hint=known)
        value = shown(outputs[name], show_secrets=show_secrets)
        is_text = isinstance(value, str) and not as_json
        current.screen.write(f"{value if is_text else format_json(value)}\n")


def _print_outputs(
    current: Session, outputs: PropertyMap, *, as_json: bool, show_secrets: bool
) -> None:
    if as_json:
        plain = {key: shown(v, show_secrets=show_secrets) for key, v in sorted(outputs.items())}
        current.screen.print(format_json(plain, indent=2))
        return
    lines = list(outputs_lines(outputs, show_secrets=show_secrets, paint=current.screen.paint))
    current.screen.print("\n".join(lines) if lines else "The stack has no outputs.")
