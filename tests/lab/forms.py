"""How much of the lab is run: a sample in ``make test``, everything in ``make lab``."""

from __future__ import annotations

import os

FULL = os.environ.get("LAB_FULL") == "1"
