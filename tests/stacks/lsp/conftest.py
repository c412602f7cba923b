"""Provide an editor: the client of pygls, with the server as its child process."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from lsprotocol import types
from processes.limits import LAST_RESORT
from pygls.lsp.client import LanguageClient

T = TypeVar("T")

TOPOLOGY = """\
# yaml-language-server: $schema=topology.schema.json
config:
  gpus: {type: integer, default: 16, multiple_of: 8}
  token: {type: string, secret: true, default: planted-4e7a}

shared_volumes:
  data: {platform: together, volume_name: "über-🚀", region: us-central-8, size_tib: 5}

clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: "{{ config.gpus }}"
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
    volume: "{{ shared_volumes.data }}"

outputs:
  status: "{{ clusters.train.status }}"
  both: "{{ clusters.train.id ~ shared_volumes.data.id }}"
"""


@dataclass
class Editor:
    """Drive one session, and store the diagnostics of the server by file name."""

    client: LanguageClient
    folder: Path
    diagnostics: dict[str, list[types.Diagnostic]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self) -> None:
        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def store_diagnostics(parameters: types.PublishDiagnosticsParams) -> None:
            name = Path(parameters.uri).name
            self.diagnostics[name] = list(parameters.diagnostics)
            self._news.set()

        @self.client.feature(types.WINDOW_SHOW_MESSAGE)
        def store_message(parameters: types.ShowMessageParams) -> None:
            self.messages.append(parameters.message)

    def build_uri(self, name: str) -> str:
        return (self.folder / name).as_uri()

    def open(self, name: str, text: str) -> None:
        self.versions[name] = 1
        item = types.TextDocumentItem(self.build_uri(name), "yaml", 1, text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))

    def change(self, name: str, text: str) -> None:
        self.versions[name] += 1
        which = types.VersionedTextDocumentIdentifier(self.versions[name], self.build_uri(name))
        document_change = types.TextDocumentContentChangeWholeDocument(text)
        self.client.text_document_did_change(
            types.DidChangeTextDocumentParams(which, [document_change])
        )

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for messages of the server until the condition holds."""
        async with asyncio.timeout(LAST_RESORT):
            while not condition():
                self._news.clear()
                await self._news.wait()

    def build_position(self, name: str, line: int, character: int) -> dict[str, Any]:
        return {
            "text_document": types.TextDocumentIdentifier(self.build_uri(name)),
            "position": types.Position(line, character),
        }


Session = Callable[[Callable[[Editor], Awaitable[T]]], T]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (project / "topology.yaml").write_text(TOPOLOGY, encoding="utf-8")
    return project


@pytest.fixture
def session(folder: Path) -> Session[Any]:
    """Return a function that runs steps with an editor and a started server."""

    def run(steps: Callable[[Editor], Awaitable[Any]]) -> Any:
        return asyncio.run(_run(folder, steps))

    return run


async def _run(folder: Path, steps: Callable[[Editor], Awaitable[Any]]) -> Any:
    client = LanguageClient("tests", "1")
    editor = Editor(client, folder)
    editor.listen()
    await client.start_io(sys.executable, "-P", "-m", "gpuform.stacks.cli", "lsp")
    try:
        await client.initialize_async(
            types.InitializeParams(
                capabilities=types.ClientCapabilities(),
                root_uri=folder.as_uri(),
                workspace_folders=[types.WorkspaceFolder(folder.as_uri(), "project")],
            )
        )
        client.initialized(types.InitializedParams())
        return await steps(editor)
    finally:
        await client.shutdown_async(None)
        client.exit(None)
        await client.stop()
