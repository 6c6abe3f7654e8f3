"""Is a document of unknown origin shaped as readers expect it?  Unknown fields of a newer version pass."""

from __future__ import annotations

from collections.abc import Mapping

_TEXT = (str,)
_TEXT_OR_NONE = (str, type(None))
_OBJECT = (dict,)
_OBJECT_OR_NONE = (dict, type(None))
_NUMBER = (int,)
_FIELDS: dict[str, tuple[type, ...]] = {
    "run_id": _TEXT,
    "state": _TEXT,
    "request_id": _TEXT,
    "owner": _TEXT,
    "attempt": _NUMBER,
    "argv": (list,),
    "cwd": _TEXT,
    "labels": _OBJECT,
    "limits": _OBJECT,
    "completion": _TEXT,
    "outcome": _OBJECT_OR_NONE,
    "program": _OBJECT_OR_NONE,
    "worker": _OBJECT_OR_NONE,
    "receipt": _OBJECT_OR_NONE,
    "reason": _TEXT_OR_NONE,
    "evidence": _OBJECT_OR_NONE,
    "resolution": _OBJECT_OR_NONE,
    "retryable": (bool,),
    "log_health": _OBJECT_OR_NONE,
    "head": _NUMBER,
    "live": _OBJECT_OR_NONE,
    "stdin": _TEXT_OR_NONE,
    "pty": _OBJECT_OR_NONE,
    "policy": _OBJECT_OR_NONE,
    "lifetime": _TEXT_OR_NONE,
    "enforcement": _OBJECT_OR_NONE,
    "nested_in": _TEXT_OR_NONE,
    "survives_unit_restart": (bool, type(None)),
    "serial": _NUMBER,
}
_ROW_FIELDS: dict[str, tuple[type, ...]] = {
    "serial": _NUMBER,
    "run_id": _TEXT,
    "shard": _TEXT,
    "owner": _TEXT,
    "request_id": _TEXT,
    "state": _TEXT,
    "attempt": _NUMBER,
    "argv": (list,),
    "cwd": _TEXT,
    "env_names": (list,),
    "labels": _OBJECT,
    "limits": _OBJECT,
    "completion": _TEXT,
    "digests": _OBJECT,
    "key_id": _TEXT,
    "nested_in": _TEXT_OR_NONE,
    "survives_unit_restart": (bool, type(None)),
    "created_ns": _NUMBER,
    "updated_ns": _NUMBER,
    "boot_id": _TEXT,
    "worker": _OBJECT_OR_NONE,
    "program": _OBJECT_OR_NONE,
    "reason": _TEXT_OR_NONE,
    "outcome": _OBJECT_OR_NONE,
    "receipt": _OBJECT_OR_NONE,
    "evidence": _OBJECT_OR_NONE,
    "retryable": (bool,),
    "stop_requested": (bool,),
    "resolution": _OBJECT_OR_NONE,
    "log_health": _OBJECT_OR_NONE,
}


def is_inspect_form(form: Mapping[str, object]) -> bool:
    """Has an inspect document every field, each of its type?"""
    return _has(form, _FIELDS)


def is_row_form(form: Mapping[str, object]) -> bool:
    """Has a journal's row every field that each version wrote, each of its type?"""
    return _has(form, _ROW_FIELDS)


def _has(form: Mapping[str, object], fields: Mapping[str, tuple[type, ...]]) -> bool:
    argv, labels = form.get("argv"), form.get("labels")
    return (
        all(_is_one(form.get(name), types) for name, types in fields.items())
        and isinstance(argv, list)
        and all(isinstance(word, str) for word in argv)
        and isinstance(labels, dict)
        and all(isinstance(value, str) for value in labels.values())
    )


def _is_one(value: object, types: tuple[type, ...]) -> bool:
    """``true`` is no number, though Python takes it for 1."""
    return isinstance(value, types) and (bool in types or not isinstance(value, bool))
