"""Import once what every case needs, into the process that all processes of cases are forked from.

Importing this module loads the lifecycles and emulators of all platforms, the topology's code and
HTTP, and derives the key of the cases' secrets. The fork server imports it (see `processes`).
"""

# ruff: noqa: E402, F401 - imported only so that no case has to, and only then
import gc

from gpuform.providers import collect_less_garbage

collect_less_garbage()
import cryptography.hazmat.primitives.ciphers.aead
import flask.testing
import httpcore
import httpx
import tenacity

import gpuform.providers.http
import gpuform.stacks.topology.registering
import gpuform.stacks.topology_program
from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store
from gpuform.providers.platform import list_own_platforms, load_object
from gpuform.stacks.engine.secrets import PassphraseCrypter
from gpuform.stacks.testing.case_run import SALT

PassphraseCrypter("", SALT).check()
for _platform in list_own_platforms().values():
    for _path in _platform.lifecycles.values():
        load_object(_path)
with Store(None) as _store:
    create_app(_store, Clock(_store))
# These objects live as long as the process: no forked process has to scan them for garbage.
gc.freeze()
