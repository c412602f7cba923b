"""Secrets of a state are in no file of a rehearsal, and not in the report."""

import base64
import contextlib
import os
from pathlib import Path

import pytest
from rehearsing.conftest import BringUp

from gpuform.schemas.rehearsal import HazardKind
from gpuform.stacks.rehearsing import RehearsalOptions, rehearse

SECRETS = ("Hunter2!OfState", "wandb-key-of-state", "plain4token-of-state")
UBUNTU = "scp.images('kr-west1') | selectattr('os_distro', 'eq', 'UBUNTU')"
SCALE = "scp.products('SCALE', region='kr-west1') | selectattr('state', 'eq', 'AVAILABLE')"
TOPOLOGY = f"""\
config:
  gpus: {{type: integer, default: 2}}
  password: {{secret: true, default: Hunter2!OfState}}
  wandb_key: {{secret: true, default: wandb-key-of-state}}
  token: {{secret: true, default: plain4token-of-state}}
clusters:
  workbench:
    platform: tensorone
    name: workbench
    gpu_type: A100
    gpu_count: "{{{{ config.gpus }}}}"
    storage_gb: 500
    region: us-west-2
    project_id: proj_456
    template_id: tmpl_pytorch_latest
    environment_variables: {{WANDB_API_KEY: "{{{{ config.wandb_key }}}}"}}
node_pools:
  train:
    platform: scp
    cluster_fabric_name: train-a
    gpu_node_name_prefix: train
    count: 2
    node_pool_id: POOL001-krw1a
    region_id: kr-west1
    vpc_id: e58348b1bc9148e5af86500fd4ef99ca
    subnet_id: ab313c43291e4b678f4bacffe10768ae
    image_id: "{{{{ ({UBUNTU} | first).id }}}}"
    server_type_id: "{{{{ ({SCALE} | first).id }}}}"
    os_user_password: "{{{{ config.password }}}}"
    init_script: "#!/bin/sh\\necho {{{{ config.token }}}}\\n"
outputs:
  token: "{{{{ config.token }}}}"
"""


def find_secrets(content: bytes) -> list[str]:
    """Return the secrets in a content: as text, in Base64 at any offset, or in hexadecimal."""
    found = []
    for secret in SECRETS:
        plain = secret.encode()
        # The inner characters of Base64 at each of the three offsets.
        forms = [base64.b64encode(b"\0" * shift + plain)[4:-4] for shift in range(3)]
        if any(form in content for form in (plain, plain.hex().encode(), *forms)):
            found.append(secret)
    return found


@pytest.mark.slow
def test_secrets_of_the_state_reach_no_file_and_no_report(
    bring_up: BringUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (planned,) = bring_up({"secretive": TOPOLOGY}, {"secretive": {"gpus": 4}})
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    contents: dict[Path, bytes] = {}

    def read_files(_played: int, _planned: int) -> None:
        # The rehearsal goes on meanwhile, and removes folders: `os.walk` passes over these.
        for folder, _, names in os.walk(temporary):
            for path in (Path(folder, name) for name in names):
                with contextlib.suppress(FileNotFoundError):
                    if path.is_file():  # not the socket of the processes
                        contents[path] = path.read_bytes()

    kinds = (HazardKind.NO_CAPACITY, HazardKind.KILLED)
    options = RehearsalOptions(hazards=kinds, jobs=1, on_progress=read_files)
    rehearsal = rehearse(planned.stack, planned.plan, options)

    assert rehearsal.outcomes
    assert any(b"workbench" in content for content in contents.values())
    leaks = {
        str(path): secrets
        for path, content in contents.items()
        if (secrets := find_secrets(content))
    }
    assert leaks == {}
    assert find_secrets(rehearsal.model_dump_json().encode()) == []
    assert not list(temporary.glob("gpuform-*"))
