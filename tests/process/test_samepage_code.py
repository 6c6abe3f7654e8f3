"""The machine code that puts a process upon an image, beside its listing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from durable_supervisor.process.samepage import code

if os.uname().machine not in code.LISTINGS:
    pytest.skip("there is no code for this machine", allow_module_level=True)


@pytest.mark.parametrize(
    ("machine", "assembler", "objcopy"),
    [("x86_64", "as", "objcopy"), ("aarch64", "aarch64-linux-gnu-as", "aarch64-linux-gnu-objcopy")],
)
def test_the_listing_is_what_an_assembler_makes_of_it(
    machine: str, assembler: str, objcopy: str, tmp_path: Path
) -> None:
    if os.uname().machine == "aarch64" == machine:
        assembler, objcopy = "as", "objcopy"
    if not (shutil.which(assembler) and shutil.which(objcopy)):
        pytest.skip(f"{assembler} is not here")
    if machine == "x86_64" and os.uname().machine != machine:
        pytest.skip("the assembler here is of another machine")
    comment = "#" if machine == "x86_64" else "//"
    source = ".intel_syntax noprefix\n" if machine == "x86_64" else ""
    for one in code.LISTINGS[machine].splitlines():
        source += one.partition("|")[2].partition(comment + " ")[0].rstrip() + "\n"
    if machine == "aarch64":
        source = source.replace("svc   \n", "svc #0\n")
    (tmp_path / "code.s").write_text(source)
    subprocess.run([assembler, "code.s", "-o", "code.o"], cwd=tmp_path, check=True)
    subprocess.run([objcopy, "-O", "binary", "-j", ".text", "code.o", "code.bin"], cwd=tmp_path, check=True)
    assert (tmp_path / "code.bin").read_bytes() == code.for_machine(machine)
