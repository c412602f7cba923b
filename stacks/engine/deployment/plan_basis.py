"""What a saved plan is made from and bound to: state, configuration, options and program."""

import json
from collections.abc import Mapping
from typing import Any

from gpuform.schemas.plan import Basis, Plan
from gpuform.stacks.engine.deployment.options import DeploymentTarget, Outcome
from gpuform.stacks.engine.registration import Digest, digests
from gpuform.stacks.engine.urn import STACK_TYPE, type_of


def basis_before(subject: DeploymentTarget, options: Mapping[str, Any], digest: Digest) -> Basis:
    """The part that is known before a preview: state, configuration, options."""
    program = subject.program
    return Basis(
        state=digests.state_digests(subject.snapshot, digest),
        config=digests.config_digests(program.config, program.secret_keys, digest),
        program={},
        options=options,
        key=digests.digest_of(digest, "key"),
    )


def basis_after(before: Basis, preview: Outcome, digest: Digest) -> Basis:
    """The whole of it, once a preview has told what the program asks for."""
    program = digests.program_digests(preview.declared, digest)
    for urn, parts in program.items():
        if type_of(urn) == STACK_TYPE:
            parts.update(digests.export_digest(preview.outputs, digest))
    effects = {urn: tuple(sorted(done)) for urn, done in sorted(preview.effects.items())}
    program = dict(sorted(program.items()))
    return before.model_copy(update={"program": program, "effects": effects})


def seal_plan(plan: Plan, digest: Digest) -> Plan:
    """The plan with a seal, by which a later change of it is noticed."""
    return _with_seal(plan, _seal(plan, digest))


def is_sealed(plan: Plan, digest: Digest) -> bool:
    """Whether nothing of the plan was changed since it was sealed."""
    return plan.basis is not None and plan.basis.seal == _seal(plan, digest)


def _seal(plan: Plan, digest: Digest) -> str:
    return digests.digest_of(digest, "plan", json.loads(_with_seal(plan, "").model_dump_json()))


def _with_seal(plan: Plan, seal: str) -> Plan:
    basis = plan.basis and plan.basis.model_copy(update={"seal": seal})
    return plan.model_copy(update={"basis": basis})
