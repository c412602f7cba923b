"""Replace local modules of Terraform by their blocks, and apply `moved` blocks to the state.

`topology` calls `inline_modules` before it pairs blocks with the state's instances. The resource
`TYPE.NAME` of `module.MODULE` becomes `TYPE.MODULE-NAME`, as gpuform names the resources of its own
modules; variables, locals and outputs of a module become locals of the root module.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gpuform.stacks.convert import TerraformNotRead
from gpuform.stacks.convert.terraform.expressions import UnresolvedExpression, find_each_value
from gpuform.stacks.convert.terraform.files import (
    ResourceInstance,
    TerraformBlock,
    TerraformFiles,
    read_blocks,
)
from gpuform.stacks.convert.terraform.resource_types import Step, to_hcl_literal

_MODULE_STEP: Final = re.compile(
    r'module\.(?P<name>[A-Za-z_][\w-]*)(?:\[(?P<key>"(?:[^"\\]|\\.)*"|\d+)\])?(?:\.|$)'
)
"""One module in an address of the state: `module.pools["a"].`"""
_ADDRESS: Final = re.compile(
    r"(?P<module>(?:module\.[\w-]+(?:\[[^\]]+\])?\.)*)(?P<type>[a-z]\w*)\.(?P<name>[\w-]+)"
    r'(?:\[(?P<key>"(?:[^"\\]|\\.)*"|\d+)\])?'
)
_ARGUMENTS_OF_MODULES: Final = {"source", "version", "providers", "count", "for_each", "depends_on"}


def inline_modules(files: TerraformFiles, folder: Path) -> "list[ModuleInstance]":
    """Replace each local module of `files` by its blocks, also modules inside modules.

    Modules of a registry or a repository stay as they are. `folder` is that of the root module.
    Returns the instances of the modules that the root module includes.

    Raises:
        TerraformNotRead: a module's files are wrong, or modules include each other.
    """
    instances: list[ModuleInstance] = []
    while (local_module := _find_local_module(files, folder)) is not None:
        block, module_folder = local_module
        files.blocks.remove(block)
        including = (block.position, *block.position.included)
        including_folders = {Path(position.file).parent.resolve() for position in including}
        if module_folder.resolve() in including_folders:
            raise TerraformNotRead(f"{block.position}: this module includes itself")
        own_position = block.position._replace(included=())
        included = (own_position, *including[1:])
        module_blocks = [
            replace(inner, position=inner.position._replace(included=included))
            for inner in read_blocks(module_folder)
        ]
        for key in _list_keys(files, block):
            instance = ModuleInstance(files, block, key, module_blocks, module_folder.resolve())
            instance.inline()
            if not block.module:
                instances.append(instance)
    return instances


def apply_moves(files: TerraformFiles) -> None:
    """Rename the state's instances as `moved` blocks say, where the state has the former name."""
    for block in files.find_blocks("moved"):
        old, new = (_parse_address(block.body.get(end)) for end in ("from", "to"))
        if old is None or new is None:
            continue
        for at, instance in enumerate(files.instances):
            if (instance.module, instance.type, instance.name) != old[:3]:
                continue
            # Without a key, the block moves all instances of the resource.
            if old[3] is None or old[3] == instance.key:
                module, type_, name, key = new
                key = instance.key if old[3] is None and key is None else key
                files.instances[at] = replace(
                    instance, module=module, type=type_, name=name, key=key
                )


def _parse_address(raw: Any) -> tuple[str, str, str, Step | None] | None:
    """Return module, type, name and key of an address in a `moved` block, or None."""
    code = str(raw).removeprefix("${").removesuffix("}")
    match = _ADDRESS.fullmatch(code)
    if match is None:
        return None
    return match["module"].rstrip("."), match["type"], match["name"], _parse_key(match["key"])


def _parse_key(key: str | None) -> Step | None:
    return None if key is None else json.loads(key)


def _find_local_module(files: TerraformFiles, folder: Path) -> tuple[TerraformBlock, Path] | None:
    """Return the first block of a module with a folder of files as source, and this folder."""
    for block in files.find_blocks("module"):
        source = str(block.body.get("source", "")).strip('"')
        if len(block.labels) == 1 and source.startswith(("./", "../", "/")):
            # A nested module is written in the folder of the module around it.
            written_in = Path(block.position.file).parent if block.position.file else folder
            # Modules without files are reported with those of a registry.
            if any((written_in / source).glob("*.tf")):
                return block, written_in / source
    return None


def _list_keys(files: TerraformFiles, block: TerraformBlock) -> list[Step | None]:
    """Return the keys of the module's instances in the state; None for a single instance."""
    if not block.body.keys() & {"count", "for_each"}:
        return [None]
    keys: dict[Step | None, None] = {}
    for instance in (*files.instances, *files.data_sources):
        step = _MODULE_STEP.match(instance.module)
        if step is not None and step["name"] == block.labels[0]:
            keys[_parse_key(step["key"])] = None
    return list(keys)


@dataclass(slots=True)
class ModuleInstance:
    """One instance of a local module, whose blocks become blocks of the module around it."""

    files: TerraformFiles
    block: TerraformBlock
    key: Step | None
    blocks: Sequence[TerraformBlock]
    folder: Path

    @property
    def prefix(self) -> str:
        """Return the prefix of the names that the instance's blocks get in the module around."""
        name = self.block.labels[0]
        return name if self.key is None else f"{name}-{self.key}"

    def find_blocks(self, type_: str) -> dict[str, TerraformBlock]:
        """Return the module's blocks of a type with one label, by name."""
        return {block.labels[0]: block for block in self.blocks if block.type == type_}

    def inline(self) -> None:
        """Add the module's blocks to the files, and rename the state's instances and references."""
        locals_ = dict(self._build_locals())
        self.files.blocks = [self._rewrite_outputs(block) for block in self.files.blocks]
        self.files.blocks += [
            TerraformBlock("locals", (), locals_, self.block.position, self.block.lines),
            *self._rename_blocks(),
        ]
        self.files.instances = list(map(self._rename_instance, self.files.instances))
        self.files.data_sources = list(map(self._rename_instance, self.files.data_sources))

    def _build_locals(self) -> Iterator[tuple[str, Any]]:
        """Yield the root module's new locals for a module's variables, locals and outputs."""
        for block in self.blocks:
            name = ".".join(block.labels)
            if block.type == "variable":
                if name in self.block.body.keys() - _ARGUMENTS_OF_MODULES:
                    yield f"{self.prefix}-var-{name}", self._resolve_each(self.block.body[name])
                # A literal would make a sensitive default public.
                elif "default" in block.body and block.body.get("sensitive") is not True:
                    yield f"{self.prefix}-var-{name}", block.body["default"]
            elif block.type == "output":
                yield f"{self.prefix}-out-{name}", self._rewrite(block.body.get("value"))
            elif block.type == "locals":
                for local, raw in block.body.items():
                    yield f"{self.prefix}-local-{local}", self._rewrite(raw)

    def _resolve_each(self, raw: Any) -> Any:
        """Return an argument of the module with the instance's `each` and `count.index`."""
        if self.key is None:
            return raw
        pattern = re.compile(r"(?<![\w.])(each\.key|count\.index)(?![\w-])")
        raw = _replace_in(raw, [(pattern, str(to_hcl_literal(self.key)))])
        for_each = self.block.body.get("for_each")
        if for_each is None or "each.value" not in str(raw):
            return raw
        with suppress(UnresolvedExpression):
            value = find_each_value(
                for_each, str(self.key), self.files.get_local, lambda _name: False
            )
            return _replace_each_value(raw, value)
        return raw

    def _rename_blocks(self) -> Iterator[TerraformBlock]:
        """Yield the module's resources, data sources and modules under their new names."""
        for block in self.blocks:
            if block.type in ("resource", "data", "module") and block.labels:
                *types, name = block.labels
                body = {key: self._rewrite(raw) for key, raw in block.body.items()}
                # The source of a module is a text, and its folder is that of the file.
                labels = (*types, f"{self.prefix}-{name}")
                module = self.block.module or self.prefix
                yield replace(block, labels=labels, body=body, module=module)

    def _rewrite(self, raw: Any) -> Any:
        """Return an expression of the module, with the prefixed names that its references get."""
        patterns = [
            # `var.` becomes `local.`, which must not be renamed a second time.
            (re.compile(r"(?<![\w.-])local\.(?=[A-Za-z_])"), f"local.{self.prefix}-local-"),
            (re.compile(r"(?<![\w.])var\.(?=[A-Za-z_])"), f"local.{self.prefix}-var-"),
        ]
        for block in self.blocks:
            *types, name = block.labels or ("",)
            root = {"resource": "", "data": "data.", "module": "module"}.get(block.type)
            if root is not None and name:
                path = root + ".".join(types)
                address = rf"{re.escape(path)}\.{re.escape(name)}"
                pattern = re.compile(rf"(?<![\w.-]){address}(?![\w-])")
                patterns.append((pattern, f"{path}.{self.prefix}-{name}"))
        return _replace_in(raw, patterns)

    def _rewrite_outputs(self, block: TerraformBlock) -> TerraformBlock:
        """Return a block of the module around that reads this instance's outputs from locals."""
        name = re.escape(self.block.labels[0])
        key = "" if self.key is None else rf"\[{re.escape(json.dumps(self.key))}\]"
        pattern = re.compile(rf"(?<![\w.-])module\.{name}{key}\.(?=[A-Za-z_])")
        body = {
            argument: _replace_in(raw, [(pattern, f"local.{self.prefix}-out-")])
            for argument, raw in block.body.items()
        }
        return replace(block, body=body)

    def _rename_instance(self, instance: ResourceInstance) -> ResourceInstance:
        """Return an instance of the state, with another name if it is in this module."""
        step = _MODULE_STEP.match(instance.module)
        own = (self.block.labels[0], self.key)
        if step is None or (step["name"], _parse_key(step["key"])) != own:
            return instance
        inner = instance.module[step.end() :]
        if not inner:
            return replace(instance, module="", name=f"{self.prefix}-{instance.name}")
        # A nested module gets the prefix, and is inlined in a later round.
        return replace(instance, module=f"module.{self.prefix}-{inner.removeprefix('module.')}")


def _replace_in(raw: Any, patterns: Sequence[tuple[re.Pattern[str], str]]) -> Any:
    """Return a raw value with the replacements in its expressions, at any depth.

    Literal texts outside of `${...}` stay.
    """
    if isinstance(raw, Mapping):
        return {key: _replace_in(item, patterns) for key, item in raw.items()}
    if isinstance(raw, list):
        return [_replace_in(item, patterns) for item in raw]
    if not isinstance(raw, str):
        return raw
    if raw.startswith('"'):
        return re.sub(r"\$\{[^{}]*\}", lambda part: _replace_all(part[0], patterns), raw)
    return _replace_all(raw, patterns)


def _replace_all(code: str, patterns: Sequence[tuple[re.Pattern[str], str]]) -> str:
    for pattern, replacement in patterns:
        # A replacement is no template of `re`: a key may contain backslashes.
        code = pattern.sub(replacement.replace("\\", r"\\"), code)
    return code


def _replace_each_value(raw: Any, value: Any) -> Any:
    """Return an argument with the raw value of `each.value` and of its members."""
    if isinstance(raw, Mapping):
        return {key: _replace_each_value(item, value) for key, item in raw.items()}
    if isinstance(raw, list):
        return [_replace_each_value(item, value) for item in raw]
    path = re.fullmatch(r"\$\{\s*each\.value((?:\.[A-Za-z_]\w*)*)\s*\}", str(raw))
    if path is None:
        return raw
    for step in filter(None, path[1].split(".")):
        if not isinstance(value, Mapping) or step not in value:
            # An expression such as `var.pools["a"]` continues as a path.
            is_expression = isinstance(value, str) and value.startswith("${")
            value = f"{value[:-1]}.{step}}}" if is_expression else None
        else:
            value = value[step]
    return raw if value is None else value
