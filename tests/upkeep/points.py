"""Where a backup is killed: every failpoint on its way."""

from __future__ import annotations

BACKUPS = ("backup.journal_copied", "backup.logs_copied", "backup.filled", "backup.renamed")
