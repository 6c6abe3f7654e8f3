"""The process in which the host part of a test runs: ``python -P child.py CALL``.

CALL is a pickle: the importer's path, where the function is, and its arguments.  Nothing of the
product is imported here before the path is that of the test.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import pickle
import sys
from types import ModuleType
from typing import Any


def main(call: str) -> None:
    with open(call, "rb") as file:
        sys.path[:], name, source, function = pickle.load(file)  # noqa: S301  written by the test itself
        found: Any = _module(name, source)
        for part in function.split("."):
            found = getattr(found, part)
        arguments = pickle.load(file)  # noqa: S301  after its module, which it may name
    result = found(*arguments)
    if inspect.isawaitable(result):
        asyncio.run(_awaited(result))


def _module(name: str, source: str) -> ModuleType:
    """The function's module, from its file: pytest may have given it a name that no import finds."""
    spec = importlib.util.spec_from_file_location(name, source)
    if spec is None or spec.loader is None:
        raise ImportError(f"{source} is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


async def _awaited(result: Any) -> None:
    await result


if __name__ == "__main__":
    main(sys.argv[1])
