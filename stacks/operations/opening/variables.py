"""Environment variables of this process, for the length of a command."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager


@contextmanager
def set_variables(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets them, and puts back what was there before."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
