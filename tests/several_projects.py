"""Folders with several projects that read of each other, as people lay them out."""

from collections.abc import Iterable
from pathlib import Path

VOLUME = """\
  {name}:
    platform: together
    volume_name: {name}
    region: us-central-8
    size_tib: 5
"""


def write_project(
    root: Path,
    folder: str,
    files: dict[str, str] | None = None,
    *,
    stacks: Iterable[str] = ("prod",),
    backend: str = "",
    salt: str = "",
) -> Path:
    """A project named as its folder, its state in the folder `state` of `root`."""
    path = root / folder
    path.mkdir(parents=True, exist_ok=True)
    (root / "state").mkdir(exist_ok=True)
    url = backend or f"file://{root / 'state'}"
    text = f"name: {path.name}\nruntime: python\nbackend:\n  url: {url}\n"
    (path / "Pulumi.yaml").write_text(text)
    for stack in stacks:
        settings = f"encryptionsalt: {salt}\n" if salt else "config: {}\n"
        (path / f"Pulumi.{stack}.yaml").write_text(settings)
    for name, content in (files or {}).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)
    return path


def topology(
    *volumes: str, reads: dict[str, str] | None = None, outputs: dict[str, str] | None = None
) -> str:
    """A topology with these volumes; `reads` are stacks by the name of the reference."""
    text = ""
    if reads:
        text += "stack_references:\n"
        text += "".join(f"  {name}: {stack}\n" for name, stack in reads.items())
    if volumes:
        text += "shared_volumes:\n" + "".join(VOLUME.format(name=name) for name in volumes)
    if outputs:
        text += "outputs:\n" + "".join(f'  {k}: "{v}"\n' for k, v in outputs.items())
    return text or "outputs: {}\n"


NETWORK = topology("data", outputs={"volume": "{{ shared_volumes.data.volume_name }}"})
CLUSTERS = topology(
    "scratch",
    reads={"network": "organization/network/prod"},
    outputs={"base": "{{ stack_references.network.volume }}"},
)


def write_three(root: Path, salt: str = "") -> None:
    """network <- clusters <- apps, which is a program; all in stacks.yaml."""
    write_project(root, "network", {"topology.yaml": NETWORK}, salt=salt)
    write_project(root, "clusters", {"topology.yaml": CLUSTERS}, salt=salt)
    write_project(root, "apps", {"__main__.py": APPS}, salt=salt)
    text = "stacks:\n" + "".join(f"  - folder: {e}\n" for e in ("apps", "clusters", "network"))
    (root / "stacks.yaml").write_text(text)


APPS = """\
import pulumi

clusters = pulumi.StackReference(f"organization/clusters/{pulumi.get_stack()}")
pulumi.export("base", clusters.require_output("base"))
"""
