"""Write folders with several projects that read each other's outputs."""

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
    """Write a project with the folder's name and a state in the folder `state` of `root`."""
    path = root / folder
    path.mkdir(parents=True, exist_ok=True)
    (root / "state").mkdir(exist_ok=True)
    url = backend or f"file://{root / 'state'}"
    project_file = f"name: {path.name}\nruntime: python\nbackend:\n  url: {url}\n"
    (path / "Pulumi.yaml").write_text(project_file)
    for stack in stacks:
        settings = f"encryptionsalt: {salt}\n" if salt else "config: {}\n"
        (path / f"Pulumi.{stack}.yaml").write_text(settings)
    for name, content in (files or {}).items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(content)
    return path


def build_topology(
    *volumes: str, reads: dict[str, str] | None = None, outputs: dict[str, str] | None = None
) -> str:
    """Return a topology with these volumes; `reads` are stacks by reference name."""
    document = ""
    if reads:
        document += "stack_references:\n"
        document += "".join(f"  {name}: {stack}\n" for name, stack in reads.items())
    if volumes:
        document += "shared_volumes:\n" + "".join(VOLUME.format(name=name) for name in volumes)
    if outputs:
        document += "outputs:\n" + "".join(f'  {k}: "{v}"\n' for k, v in outputs.items())
    return document or "outputs: {}\n"


NETWORK = build_topology("data", outputs={"volume": "{{ shared_volumes.data.volume_name }}"})
CLUSTERS = build_topology(
    "scratch",
    reads={"network": "organization/network/prod"},
    outputs={"base": "{{ stack_references.network.volume }}"},
)


def write_three_projects(root: Path, salt: str = "") -> None:
    """Write the projects network <- clusters <- apps, a program, and a stacks.yaml with all."""
    write_project(root, "network", {"topology.yaml": NETWORK}, salt=salt)
    write_project(root, "clusters", {"topology.yaml": CLUSTERS}, salt=salt)
    write_project(root, "apps", {"__main__.py": APPS}, salt=salt)
    stacks_file = "stacks:\n" + "".join(
        f"  - folder: {folder}\n" for folder in ("apps", "clusters", "network")
    )
    (root / "stacks.yaml").write_text(stacks_file)


APPS = """\
import pulumi

clusters = pulumi.StackReference(f"organization/clusters/{pulumi.get_stack()}")
pulumi.export("base", clusters.require_output("base"))
"""
