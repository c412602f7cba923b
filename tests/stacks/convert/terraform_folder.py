"""Write a folder with Terraform's files and state, and convert the folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuform.stacks.convert.terraform import TerraformConversion, convert_terraform

StateResource = tuple[str, str, Sequence[Mapping[str, Any]]]
"""Type, name and instances of a resource. The type of a data source has the prefix `data.`."""


def convert_files(folder: Path, files: str, *resources: StateResource) -> TerraformConversion:
    """Convert one file whose state has the resources."""
    (folder / "main.tf").write_text(files)
    state = [
        {
            "mode": "data" if type_.startswith("data.") else "managed",
            "type": type_.removeprefix("data."),
            "name": name,
            "instances": instances,
        }
        for type_, name, instances in resources
    ]
    (folder / "terraform.tfstate").write_text(json.dumps({"version": 4, "resources": state}))
    return convert_terraform(folder)


def list_omissions(conversion: TerraformConversion) -> list[str]:
    """Return position (`main.tf:LINE:COLUMN`), message and hint of each omission."""
    return [
        str(omission).replace(omission.position.file, Path(omission.position.file).name, 1)
        for omission in conversion.omissions
    ]
