"""Run a program on the Pulumi SDK alone, with a monitor that answers at once, as the reference.

`sdk_alone.py [--preview]` runs the project of the working folder: the work of the program and the
SDK, without an engine. `--spared` applies gpuform's patches of the SDK; `--without` leaves one out.
"""

import argparse
import asyncio
import gc
import runpy
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf import empty_pb2
from pulumi.runtime import settings
from pulumi.runtime.proto import engine_pb2, resource_pb2
from pulumi.runtime.stack import run_in_stack

from gpuform.providers import COLLECTION_THRESHOLDS
from gpuform.stacks.engine.sdk_patches import PATCHES

FEATURES = (
    resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
)


class Monitor:
    """A resource monitor for which each resource exists, with its inputs as outputs."""

    def GetDeploymentInfo(self, _request: Any) -> Any:
        return resource_pb2.DeploymentInfo(
            project="bench", stack="dev", organization="organization", supportedFeatures=FEATURES
        )

    def SupportsFeature(self, _request: Any) -> Any:
        return resource_pb2.SupportsFeatureResponse(hasSupport=True)

    def RegisterResource(self, request: Any) -> Any:
        return resource_pb2.RegisterResourceResponse(
            urn=f"urn:pulumi:dev::bench::{request.type}::{request.name}",
            id=request.name if request.custom else "",
            object=request.object,
        )

    def RegisterResourceOutputs(self, _request: Any) -> Any:
        return empty_pb2.Empty()

    def SignalAndWaitForShutdown(self, _request: Any) -> Any:
        return empty_pb2.Empty()


class Engine:
    def Log(self, _request: Any) -> Any:
        return empty_pb2.Empty()

    def RequirePulumiVersion(self, _request: Any) -> Any:
        return engine_pb2.RequirePulumiVersionResponse()


def main() -> None:
    """Run the program as the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preview", action="store_true")
    parser.add_argument("--spared", action="store_true")
    parser.add_argument("--without", choices=[patch.name for patch in PATCHES])
    options = parser.parse_args()
    with ExitStack() as patches:
        if options.spared:
            gc.set_threshold(*COLLECTION_THRESHOLDS)
            for patch in PATCHES:
                if patch.name != options.without:
                    patches.enter_context(patch.apply())
        run(preview=options.preview)


def run(*, preview: bool) -> None:
    """Run `__main__.py` of the working folder."""
    settings.configure(
        settings.Settings(
            project="bench",
            stack="dev",
            monitor=Monitor(),
            engine=Engine(),
            dry_run=preview,
            organization="organization",
            root_directory=str(Path.cwd()),
        )
    )
    sys.path.insert(0, str(Path.cwd()))
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(run_in_stack(partial(runpy.run_path, "__main__.py")))
    loop.close()


if __name__ == "__main__":
    main()
