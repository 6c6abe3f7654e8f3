#!/bin/sh
# Makes .venv in the current directory from requirements-dev.txt, or leaves it alone
# when it is up to date (so no network is needed then).  pip's own configuration
# (index, proxy, constraints) is honoured as it is.
#
# PYTHON=/path/to/python chooses the interpreter.
set -eu

venv=.venv
stamp="$venv/.ready"

say() { printf '%s\n' "$*" >&2; }

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    say "Python 3.11 or newer is needed and was not found."
    say "On Debian or Ubuntu:  $(apt_command) python3 python3-venv"
    say "Or name one:          make PYTHON=/path/to/python3.11 ..."
    exit 1
}

apt_command() {
    sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo "
    printf '%sapt-get update && %sapt-get install -y' "$sudo" "$sudo"
}

# Debian splits ensurepip into pythonX.Y-venv; without it `python -m venv` fails half-way.
need_ensurepip() {
    if ! "$1" -c 'import ensurepip, venv' 2>/dev/null; then
        version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        say "This Python ($version) cannot make a virtual environment: its venv package is missing."
        say "Run:  $(apt_command) python$version-venv"
        exit 1
    fi
}

# What the environment was made from: the pins, the project file and where it stands.
fingerprint() {
    cksum requirements-dev.txt pyproject.toml
    pwd -P
}

wanted=$(fingerprint)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && "$venv/bin/python" -c '' 2>/dev/null; then
    exit 0
fi

# With no usable HOME pip would put its cache at the root of the file system.
if [ -z "${HOME:-}" ] || [ ! -d "$HOME" ] || [ ! -w "$HOME" ]; then
    export PIP_NO_CACHE_DIR="${PIP_NO_CACHE_DIR:-1}"
fi

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 || ! new_enough "$venv/bin/python"; then
    python=$(find_python)
    need_ensurepip "$python"
    say "Making $venv with $("$python" --version)..."
    "$python" -m venv --clear "$venv"
fi
rm -f "$stamp"
say "Installing the pinned packages into $venv..."
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements-dev.txt
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
printf '%s\n' "$wanted" > "$stamp"
