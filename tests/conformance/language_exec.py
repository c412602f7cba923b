"""Run a Pulumi program as the CLI's Python language host does, with settings from flags."""

import argparse
import asyncio
import json
import logging
import os
import runpy
import sys
from concurrent.futures import ThreadPoolExecutor

from pulumi.runtime import config, settings
from pulumi.runtime.stack import run_in_stack


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("project", "stack", "monitor", "engine", "pwd", "dry_run", "organization"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--parallel", type=int, required=True)
    parser.add_argument("--root_directory", required=True)
    parser.add_argument("program")
    args = parser.parse_args()
    secret_keys = json.loads(os.environ["PULUMI_CONFIG_SECRET_KEYS"])
    config.set_all_config(json.loads(os.environ["PULUMI_CONFIG"]), secret_keys)
    settings.configure(
        settings.Settings(
            monitor=args.monitor,
            engine=args.engine,
            project=args.project,
            stack=args.stack,
            parallel=args.parallel,
            dry_run=args.dry_run == "true",
            organization=args.organization,
            root_directory=args.root_directory,
        )
    )
    sys.argv = [args.program]
    os.chdir(args.pwd)
    sys.path.insert(0, args.pwd)
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(max(args.parallel, 1) * 4))
    asyncio.set_event_loop(loop)

    def run() -> None:
        runpy.run_path(args.program, run_name="__main__")

    loop.run_until_complete(run_in_stack(run))


if __name__ == "__main__":
    main()
