"""What `backup` answers, and what a backup says about itself."""

from __future__ import annotations

from dataclasses import dataclass

from .events import iso_time
from .schema import schema_name

MANIFEST = "backup.json"  # in the copy; a directory that has it began as one


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupReport:
    """A backup that is whole and in its place.

    ``directory_id`` is the copy's own, ``original`` that of the directory it was made of.  ``runs`` have
    their logs in it, ``collected`` ones their rows alone; ``imported`` ones are in it as they are.
    ``unsettled``: the runs that were not over, by what the copy says of each.  ``not_retried``: refused
    requests that the copy never tries again.  ``left_out``: runs whose logs could not be read, or not to
    their end, and why; their rows are in it.
    """

    path: str
    directory_id: str
    original: str
    made_ns: int
    runs: int
    collected: int
    unsettled: dict[str, str]
    not_retried: int
    left_out: dict[str, str]
    files: int
    bytes: int
    imported: int = 0

    def to_dict(self) -> dict[str, object]:
        """The backup document."""
        return {
            "schema": schema_name("backup"),
            "path": self.path,
            "directory_id": self.directory_id,
            "original": self.original,
            "made_at": iso_time(self.made_ns),
            "runs": self.runs,
            "collected": self.collected,
            "imported": self.imported,
            "unsettled": self.unsettled,
            "not_retried": self.not_retried,
            "left_out": self.left_out,
            "files": self.files,
            "bytes": self.bytes,
        }
