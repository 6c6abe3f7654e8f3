"""The encoder that is made once writes what json's own would."""

from __future__ import annotations

import json
from json import encoder as parts

import pytest

from durable_supervisor.model.compact import compact_encoder

DOCUMENTS = [
    {"argv": ["/bin/true", 'é\n"\\\x7f'], "cwd": "/\udc80", "none": None},
    {"sizes": [0, -1, 1.5, 10**30, 1e300], "b": {"z": True, "a": False}, "a": ({}, [], ())},
    "text",
    [],
    7,
]


@pytest.mark.parametrize("document", DOCUMENTS)
@pytest.mark.parametrize("sort_keys", [False, True])
def test_it_writes_what_json_does(document: object, sort_keys: bool) -> None:
    expected = json.dumps(document, sort_keys=sort_keys, separators=(",", ":"))
    encode = compact_encoder(sort_keys=sort_keys)
    assert [encode(document), encode(document)] == [expected, expected]


def test_what_is_no_json_is_refused() -> None:
    encode = compact_encoder(allow_nan=False)
    with pytest.raises(TypeError):
        encode({"bytes": b""})
    with pytest.raises(ValueError, match="JSON compliant"):
        encode([float("nan")])
    assert compact_encoder()([float("nan")]) == "[NaN]"


def test_without_the_part_that_has_no_public_name(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = [compact_encoder(sort_keys=True)(document) for document in DOCUMENTS]
    monkeypatch.setattr(parts, "c_make_encoder", None)
    assert [compact_encoder(sort_keys=True)(document) for document in DOCUMENTS] == expected
