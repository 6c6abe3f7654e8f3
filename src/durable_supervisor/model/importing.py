"""What `import_` answers, and what stays known of where an imported run came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .events import iso_time
from .forms import wall_ns
from .schema import schema_name


class ImportAdmission(StrEnum):
    """How a bundle was taken."""

    IMPORTED = "imported"
    ALREADY = "already"  # this very run was imported before
    OWN = "own"  # it is a run of this directory, which knows it: nothing was done


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportMark:
    """Where an imported run comes from.

    ``directory_id`` is that of the state directory that ran it, by its log; None where the bundle has no log.
    ``version`` is of the product that exported it.  ``sha256`` is of the bundle's file.
    """

    directory_id: str | None
    imported_ns: int
    by_uid: int
    version: str
    sha256: str

    def to_dict(self) -> dict[str, object]:
        """``imported`` of an inspect document."""
        return {
            "directory_id": self.directory_id,
            "imported_at": iso_time(self.imported_ns),
            "by_uid": self.by_uid,
            "version": self.version,
            "sha256": self.sha256,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> ImportMark:
        """From its document; the time has its microseconds.  Raises KeyError, TypeError, ValueError."""
        if not isinstance(form["directory_id"], str | None):
            raise TypeError("directory_id")
        return cls(
            directory_id=form["directory_id"],
            imported_ns=wall_ns(form["imported_at"]),
            by_uid=int(form["by_uid"]),
            version=str(form["version"]),
            sha256=str(form["sha256"]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What became of one bundle.

    ``state`` is the run's as the directory shows it now; of an ``open`` one that was imported, the state
    that it had when it was exported, for good.  ``directory_id`` as in `ImportMark`.
    """

    bundle: str
    run_id: str
    admission: ImportAdmission
    state: str
    directory_id: str | None

    def to_dict(self) -> dict[str, object]:
        """The import document."""
        return {
            "schema": schema_name("import"),
            "bundle": self.bundle,
            "run_id": self.run_id,
            "admission": self.admission.value,
            "state": self.state,
            "directory_id": self.directory_id,
        }

    @classmethod
    def from_dict(cls, form: Mapping[str, Any]) -> ImportReport:
        """From an import document.  Raises KeyError, ValueError."""
        return cls(
            bundle=form["bundle"],
            run_id=form["run_id"],
            admission=ImportAdmission(form["admission"]),
            state=form["state"],
            directory_id=form["directory_id"],
        )
