"""A run of another directory, for everybody to import: it is there as a whole, and is nobody's request."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.crash.harness import ROOT

PACKED = ROOT / "tests" / "fixtures" / "imported" / "format-1.tar.xz"
RUN = "qjx4s5dkj9ebvewg"


def bundle(folder: Path) -> str:
    """The path of its bundle, below a folder of the experiment."""
    place = folder / "foreign.zip"
    if not place.exists():
        with tarfile.open(PACKED) as tar:
            packed = tar.extractfile(f"imported/1.{RUN}/bundle.zip")
            assert packed is not None
            place.write_bytes(packed.read())
    return str(place)
