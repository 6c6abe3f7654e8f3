"""What an owner that stays loads when it opens, and one that is only passing where it needs it.

A command line that starts a run and is gone would spend a tenth of its time on these.  Who stays has them at
hand: no start or stop may depend on a descriptor that is left to read a module with, and none may meet the
files of another version, which was installed meanwhile.  Left out is what takes long to load and only an
operator asks for: bundles and imports, an audit, capabilities.
"""

from __future__ import annotations

import importlib
from typing import Final

_STARTS: Final = (".policy.planning", ".workers.unspawned", "..model.terminal")
_VERBS: Final = (
    ".controls.acknowledging", ".controls.attach", ".controls.controls", ".controls.resolving",
    ".controls.stopping", ".following.follow", ".following.news", ".reading.reading", "..model.event_json",
)  # fmt: skip
_HOUSEKEEPING: Final = (".gc.collector", ".imports.importer", ".gc.leftovers", "..model.collecting")
_JUDGING: Final = ("..reconcile.told", "..reconcile.word")


def load_all() -> None:
    """Blocking; at once where it was done before."""
    for name in (*_STARTS, *_VERBS, *_HOUSEKEEPING, *_JUDGING):
        importlib.import_module(name, __package__)
