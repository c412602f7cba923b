"""Explain a resource, node or object of a stack, with secrets masked.

`gpuform explain` calls this module; it opens the stack and calls `stacks/explain`. It locks nothing
and writes nothing, and asks no platform.
"""

import time

from gpuform.providers.values import Redactor
from gpuform.schemas.timeline import Explanation
from gpuform.stacks.explain import explain
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.runs.plan_file import redact_value
from gpuform.stacks.operations.runs.run_log import collect_secrets


def explain_name(selected: SelectedStack, name: str) -> Explanation:
    """Return the life of a resource, a node or an object, by the history and the state.

    `name` is a URN, a resource's name in the program, an object's id, or a node's name or id.

    Raises:
        EngineError: the stack cannot be opened, or neither its state nor its history has the name.
    """
    with selected.begin_operation() as begun:
        stack = begun.open()
        explanation = explain(stack, name, now=time.time())
        config_secrets = stack.build_target().program.collect_secrets()
        # People write messages: any secret may be in one. In the other texts, secrets of the state
        # are masked since they were recorded, and a kubeconfig names the objects themselves.
        messages = [run.message for run in explanation.runs]
        all_secrets = {*config_secrets, *collect_secrets(stack.snapshot, {})}
        message_redactor = Redactor(all_secrets, within=messages)
    redactor = Redactor(config_secrets)
    return explanation.model_copy(
        update={
            "events": tuple(
                event.model_copy(
                    update={
                        "reason": redactor.redact(event.reason),
                        "changes": redact_value(event.changes, redactor),
                    }
                )
                for event in explanation.events
            ),
            "tests": redact_value(explanation.tests, redactor),
            "repairs": redact_value(explanation.repairs, redactor),
            "runs": tuple(
                redact_value(run, redactor).model_copy(
                    update={
                        "message": message_redactor.redact(run.message),
                        "plan_digest": run.plan_digest,
                        "commit": run.commit,
                    }
                )
                for run in explanation.runs
            ),
            "unknown": redact_value(explanation.unknown, redactor),
        }
    )
