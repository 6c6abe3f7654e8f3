"""The pages under docs/ say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from durable_supervisor.cli.output import exit_codes
from durable_supervisor.model.errors import ErrorCode, Phase
from durable_supervisor.model.events import ALL_KINDS, Kind
from durable_supervisor.model.outcome import OutcomeKind
from durable_supervisor.model.secrets import SECRET_NAME_WORDS
from durable_supervisor.model.states import RunState
from durable_supervisor.wire.details import DETAILS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *ROOT.glob("*.md")])


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def sections(text: str, mark: str) -> dict[str, str]:
    """Title -> body for every heading that begins with ``mark``."""
    parts = re.split(rf"^{mark} (.+)$", text, flags=re.MULTILINE)[1:]
    return {title.strip("` "): body for title, body in zip(parts[::2], parts[1::2], strict=True)}


def test_errors_lists_every_code_in_order_and_no_other() -> None:
    assert list(sections(page("errors.md"), "##")) == [code.value for code in ErrorCode]


@pytest.mark.parametrize("code", list(ErrorCode))
def test_each_error_says_what_it_means_and_what_to_do(code: ErrorCode) -> None:
    body = sections(page("errors.md"), "##")[code.value]
    labels = re.findall(r"^- (\w[\w ]*):", body, flags=re.MULTILINE)
    assert labels == ["Meaning", "Retryable", "Next step", "Exit"]
    assert f"- Exit: {exit_codes.of_error(code)}." in body


def test_errors_names_every_phase() -> None:
    assert not [phase for phase in Phase if f"`{phase.value}`" not in page("errors.md")]


def test_every_code_has_a_test() -> None:
    """Somewhere in the suite, besides here and the documents, each code is expected by name."""
    here = {Path(__file__).name, "test_wire.py"}
    files = [path for path in (ROOT / "tests").rglob("test_*.py") if path.name not in here]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    missing = [code.value for code in ErrorCode if not re.search(rf"\b{code.value}\b", text)]
    assert missing == []


def test_events_lists_every_kind_and_no_other() -> None:
    titles = {title for title in sections(page("events.md"), "###") if re.fullmatch(r"[a-z_.]+", title)}
    assert titles == ALL_KINDS


@pytest.mark.parametrize("kind", sorted(ALL_KINDS - {Kind.OUTPUT}))
def test_events_explains_every_field_of_a_detail(kind: str) -> None:
    body = sections(page("events.md"), "###")[kind]
    assert not [name for name in DETAILS[kind].model_fields if f"`{name}`" not in body]


def test_architecture_names_states_outcomes_and_secret_words() -> None:
    text = page("architecture.md")
    assert not [state.value for state in RunState if state.value not in text]
    assert not [kind.value for kind in OutcomeKind if kind.value not in text]
    assert not [word for word in SECRET_NAME_WORDS if f"`{word}`" not in text]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    broken = [link for link in links if "://" not in link and not (path.parent / link).exists()]
    assert broken == []


def test_architecture_names_the_base_environment() -> None:
    from durable_supervisor.model.environment import BASE_NAMES, DEFAULT_PATH

    text = page("architecture.md")
    assert not [name for name in (*BASE_NAMES, DEFAULT_PATH) if f"`{name}`" not in text]


def test_architecture_links_every_schema() -> None:
    links = set(re.findall(r"schemas/([\w.-]+\.json)", page("architecture.md")))
    assert links == {path.name for path in (DOCS / "schemas").iterdir()}
