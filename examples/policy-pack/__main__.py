"""A policy pack of Pulumi for gpuform's resources, in both forms of their types."""

from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    StackValidationArgs,
    StackValidationPolicy,
)

MOST_GPUS = 32


def get_kind(type_token: str) -> str:
    """Return the platform and kind, such as `together:Cluster`, or an empty text.

    Programs and topologies register `pulumi-python:dynamic/gpuform.together:Cluster`, and programs
    with the provider plugin `gpuform:together:Cluster`.
    """
    for prefix in ("pulumi-python:dynamic/gpuform.", "gpuform:"):
        if type_token.startswith(prefix):
            return type_token.removeprefix(prefix)
    return ""


def require_expiry(args: ResourceValidationArgs, report_violation: ReportViolation) -> None:
    """Report an on-demand cluster that never ends by itself."""
    if get_kind(args.resource_type) != "together:Cluster":
        return
    ends = args.props.get("expires") or args.props.get("ttl")
    if args.props.get("billing_type") == "ON_DEMAND" and not ends:
        report_violation("declare expires or ttl: an on-demand cluster must end by itself")


def limit_gpus(args: StackValidationArgs, report_violation: ReportViolation) -> None:
    """Report a stack with more GPUs than the team may use."""
    gpus = sum(
        int(resource.props.get("num_gpus") or 0)
        for resource in args.resources
        if get_kind(resource.resource_type) == "together:Cluster"
    )
    if gpus > MOST_GPUS:
        report_violation(f"the stack would have {gpus} GPUs: the limit is {MOST_GPUS}")


PolicyPack(
    name="gpu-clusters",
    enforcement_level=EnforcementLevel.MANDATORY,
    policies=[
        ResourceValidationPolicy(
            name="clusters-expire",
            description="On-demand clusters end by themselves.",
            enforcement_level=EnforcementLevel.ADVISORY,
            validate=require_expiry,
        ),
        StackValidationPolicy(
            name="few-gpus",
            description="A stack has at most 32 GPUs.",
            validate=limit_gpus,
        ),
    ],
)
