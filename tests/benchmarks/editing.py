"""Measure how long an editor waits for `gpuform lsp` in a large topology.

python tests/benchmarks/editing.py [--resources 1000] [--times 5]

The editor is pygls' own client, connected by pipes to a real process. Of several times the median
counts. `diagnostics` is the time from a typed key until the server has sent the new diagnostics.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from lsprotocol import types
from pygls.lsp.client import LanguageClient

sys.path.insert(0, str(Path(__file__).parent))
from running import measure, render_table
from validating import write_topology

Step = Callable[[], Awaitable[object]]
GPUFORM = (sys.executable, "-m", "gpuform.stacks.cli")


class Editor:
    """An editor with one open file."""

    def __init__(self, file: Path) -> None:
        self.text = file.read_text()
        self._uri = file.as_uri()
        self._version = 0
        self._has_diagnostics = asyncio.Event()
        self.client = LanguageClient("benchmark", "1")

        @self.client.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def receive_diagnostics(parameters: types.PublishDiagnosticsParams) -> None:
            if parameters.version in (None, self._version):
                self._has_diagnostics.set()

    async def open(self) -> None:
        item = types.TextDocumentItem(self._uri, "yaml", self._version, self.text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        await self._has_diagnostics.wait()

    async def type_comment(self) -> None:
        """Add a comment to the last cluster, and wait for the new diagnostics."""
        self._version += 1
        self._has_diagnostics.clear()
        head, _, tail = self.text.rpartition("ON_DEMAND")
        new_text = f"{head}ON_DEMAND # {self._version}{tail}"
        document = types.VersionedTextDocumentIdentifier(self._version, self._uri)
        change = types.TextDocumentContentChangeWholeDocument(new_text)
        self.client.text_document_did_change(types.DidChangeTextDocumentParams(document, [change]))
        await self._has_diagnostics.wait()

    def list_requests(self) -> dict[str, Step]:
        """Return an editor's requests by name, at the last cluster of the file."""
        document = types.TextDocumentIdentifier(self._uri)
        lines = self.text.splitlines()
        last = len(lines) - 1
        volume = types.Position(last, lines[last].index(".data") + 2)
        key = types.Position(last, 6)
        client = self.client

        async def complete() -> None:
            await client.text_document_completion_async(types.CompletionParams(document, volume))

        async def hover() -> None:
            assert await client.text_document_hover_async(types.HoverParams(document, key))

        async def define() -> None:
            assert await client.text_document_definition_async(
                types.DefinitionParams(document, volume)
            )

        async def rename() -> None:
            assert await client.text_document_rename_async(
                types.RenameParams(document, volume, "bulk")
            )

        return {
            "diagnostics": self.type_comment,
            "completion": complete,
            "hover": hover,
            "definition": define,
            "rename, used everywhere": rename,
        }


async def measure_latencies(file: Path, times: int) -> dict[str, float]:
    """Return the seconds of each request, by its name."""
    editor = Editor(file)
    client = editor.client
    await client.start_io(*GPUFORM, "lsp")
    root = file.parent.as_uri()
    await client.initialize_async(
        types.InitializeParams(
            capabilities=types.ClientCapabilities(),
            root_uri=root,
            workspace_folders=[types.WorkspaceFolder(root, "bench")],
        )
    )
    client.initialized(types.InitializedParams())
    await editor.open()
    latencies_by_step = {}
    for label, step in editor.list_requests().items():
        durations = []
        for _ in range(times):
            began = time.monotonic()
            await step()
            durations.append(time.monotonic() - began)
        latencies_by_step[label] = statistics.median(durations)
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()
    return latencies_by_step


def main() -> None:
    """Print the figures of a quarter of the resources, of all, and the growth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--resources", type=int, default=1000)
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    counts = (options.resources // 4, options.resources)
    rows = [("resources", *map(str, counts), "growth")]
    with TemporaryDirectory() as name:
        figures = []
        for count in counts:
            folder = Path(name, str(count))
            folder.mkdir()
            (folder / "Pulumi.yaml").write_text("name: bench\nruntime: python\n")
            file = Path(write_topology(folder, count)).rename(folder / "topology.yaml")
            validate = measure([*GPUFORM, "validate", str(file)], folder)
            waits = asyncio.run(measure_latencies(file, options.times))
            figures.append({"gpuform validate": validate.seconds, **waits})
        few, all_ = figures
        for label in few:
            growth = f"{all_[label] / few[label]:.1f}"
            rows.append((label, f"{few[label]:.3f} s", f"{all_[label]:.3f} s", growth))
        ratios = [f"{figure['diagnostics'] / figure['gpuform validate']:.2f}" for figure in figures]
        rows.append(("ratio of diagnostics to validate", *ratios, ""))
    sys.stdout.write(render_table(rows))


if __name__ == "__main__":
    main()
