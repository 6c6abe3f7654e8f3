"""What becomes of a bundle: pure functions of what it holds and what the directory knows."""

from __future__ import annotations

from dataclasses import dataclass

from ...bundle.check import DAMAGE
from ...bundle.contents import CAST, REPORT, Manifest, Member
from ...bundle.told import Told
from ...journal.rows import RunRow
from ...model.errors import ErrorCode, Phase, SupervisorError
from ...model.importing import ImportAdmission
from ...model.verify import VerifyReport


@dataclass(frozen=True, slots=True)
class Staged:
    """A bundle that was found whole, laid out in the workshop."""

    manifest: Manifest
    told: Told
    directory_id: str | None
    sha256: str


def decide(staged: Staged, row: RunRow | None, same: Manifest | None, directory_id: str) -> ImportAdmission:
    """What becomes of a whole bundle, by what the directory knows of its run id.

    ``row``: the directory's own run; ``same``: the manifest of an import.  Raises ``IMPORT_CONFLICT``.
    """
    told = staged.told.row
    if row is not None:
        one = (row.request_id, row.owner, row.created_ns)
        other = (told.request_id, told.owner, told.created_ns)
        if staged.directory_id == directory_id and one == other:
            return ImportAdmission.OWN
        raise _conflict(
            staged, "a run of this directory has its id, and another origin", "read the bundle where it is"
        )
    if staged.directory_id == directory_id:
        # Its request id was spent here.  As an import it would be readable, and the id free.
        problem = "it is of this very directory, whose journal does not know it"
        raise _conflict(staged, problem, "the journal is older than the bundle: restore it from a backup")
    if same is None:
        return ImportAdmission.IMPORTED
    if _run_of(same) == _run_of(staged.manifest):
        return ImportAdmission.ALREADY
    problem = "the run was imported before, with other content"
    raise _conflict(staged, problem, "to have this bundle instead, move that run's folder away first")


def _run_of(manifest: Manifest) -> dict[str, Member]:
    """What a bundle holds of its run: the rest is made of that, and may be left out."""
    return {name: member for name, member in manifest.members.items() if name not in (REPORT, CAST)}


def refusal(report: VerifyReport, told: Told | None) -> str | None:
    """Why a bundle with these findings is not taken; None where all is well.

    A log that was damaged when it was exported is no reason, as long as the bundle says that it was.
    """
    errors = [found for found in report.findings if found.severity == "error"]
    admitted = told is not None and told.view.log_health is not None
    if admitted and len(errors) == report.counts["error"] and all(found.code in DAMAGE for found in errors):
        return None
    return errors[0].problem if errors else None


def _conflict(staged: Staged, problem: str, hint: str) -> SupervisorError:
    return SupervisorError(
        ErrorCode.IMPORT_CONFLICT,
        f"run {staged.manifest.run_id} cannot be imported: {problem}",
        phase=Phase.ADMIT,
        hint=hint,
        details={"run_id": staged.manifest.run_id, "directory_id": staged.directory_id},
    )
