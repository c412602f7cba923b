"""Report about the cluster to others: a program reads stacks as a topology does."""

import pulumi

training = pulumi.StackReference(f"organization/training/{pulumi.get_stack()}")
place = training.require_output("region")
gpus = training.require_output("gpus")
pulumi.export("told", pulumi.Output.format("{0} GPUs in {1}", gpus.apply(int), place))
pulumi.export("cluster", training.require_output("cluster"))
