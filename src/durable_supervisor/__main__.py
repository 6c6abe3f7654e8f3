"""``python -m durable_supervisor``: the command line, where ``dsup`` is not on the PATH."""

from __future__ import annotations

from .cli.main import main

if __name__ == "__main__":
    main()
