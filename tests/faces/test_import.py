"""Importing, whoever answers."""

from __future__ import annotations

from pathlib import Path

from durable_supervisor import Command, ErrorCode, Phase, RunState, Supervisor
from tests.faces.face import Face, refusing
from tests.imports.bundles import exported, finished


async def test_an_imported_run_answers_on_every_face(face: Face, tmp_path: Path) -> None:
    async with Supervisor.open(tmp_path / "theirs") as sup:
        original = await finished(sup, face.id("theirs"), labels={"import": face.tag})
    bundle = exported(tmp_path / "theirs", original.id, tmp_path / "run.zip")

    report = await face.sup.import_(bundle)
    assert (report.admission, report.run_id, report.state) == ("imported", original.id, "finished")
    assert report.bundle == str(bundle)
    assert (await face.sup.import_(str(bundle))).admission == "already"

    seen = await face.sup.inspect(original.id)
    assert seen.imported is not None
    assert seen.imported.directory_id == report.directory_id
    assert (seen.outcome, seen.argv) == (original.outcome, original.argv)
    [listed] = (await face.sup.list(label=("import", face.tag))).runs
    assert (listed.id, listed.imported) == (original.id, seen.imported)
    page = await face.sup.events(original.id, limit=1000)
    assert page.events[-1].kind == "run.finished"
    followed = [event async for event in face.sup.follow(original.id)]
    assert [event.seq for event in followed] == [event.seq for event in page.events]
    assert (await face.sup.wait(original.id)).state is RunState.FINISHED
    async with refusing(ErrorCode.NOT_RUNNING, Phase.CONTROL, {"run_id": original.id}):
        await face.sup.stop(original.id)
    async with refusing(ErrorCode.NOT_RESOLVABLE, Phase.CONTROL, {"run_id": original.id}):
        await face.sup.resolve(original.id)

    mine = await face.sup.start(Command(argv=["true"]), request_id=face.id("theirs"))
    assert (mine.admission, mine.id == original.id) == ("new", False)


async def test_what_is_no_bundle_is_refused_on_every_face(face: Face, tmp_path: Path) -> None:
    file = tmp_path / "no.zip"
    file.write_text("hello")
    details = {"field": "bundle", "path": str(file)}
    async with refusing(ErrorCode.INVALID_REQUEST, Phase.READ, details):
        await face.sup.import_(file)
    async with refusing(ErrorCode.INVALID_REQUEST, Phase.VALIDATE, {"field": "bundle"}):
        await face.sup.import_("a\0b")
