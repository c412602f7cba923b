"""A machine for development that stops when nobody works on it."""

import pulumi

from gpuform.providers.tensorone import Cluster
from gpuform.stacks import is_emulated

config = pulumi.Config()
# A real platform gets yours: gpuform config set --secret wandb_key
wandb_key = (
    config.get_secret("wandb_key", "no-key-for-the-emulator")
    if is_emulated()
    else config.require_secret("wandb_key")
)

workbench = Cluster(
    "workbench",
    name="workbench",
    description="Notebooks and short experiments",
    gpu_type="A100",
    gpu_count=config.get_int("gpus") or 2,
    storage_gb=500,
    region="us-west-2",
    project_id="proj_456",
    template_id="tmpl_pytorch_latest",
    environment_variables={
        "WANDB_MODE": "online",
        "WANDB_API_KEY": wandb_key,
    },
    port_mappings=[
        {"internal_port": 8888, "protocol": "tcp", "description": "Jupyter"},
        {"internal_port": 6006, "protocol": "tcp", "description": "TensorBoard"},
    ],
    auto_terminate={"enabled": True, "idle_minutes": 60, "cost_limit_usd": 100},
    tags={"team": "research"},
    state="stopped" if config.get("state") == "stopped" else "running",
    final_snapshot=True,
)

pulumi.export("status", workbench.status)
pulumi.export("jupyter", workbench.port_urls.apply(lambda urls: urls.get("8888")))
pulumi.export("ssh", workbench.ssh_command)
pulumi.export("usd_per_hour", workbench.current_hourly_rate)
