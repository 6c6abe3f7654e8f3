"""``python -m durable_supervisor.cli``."""

from __future__ import annotations

from .main import main

if __name__ == "__main__":
    main()
