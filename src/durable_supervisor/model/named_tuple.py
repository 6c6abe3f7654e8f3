"""`typing.NamedTuple` that leaves annotations alone, for the classes that every start loads.

The one of `typing` compiles the annotation of every field.  A command that starts a run loads some twenty
such classes with 130 fields, and compiling those took a quarter of what a bare interpreter takes to start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import namedtuple

    class _Fields(type):
        """Makes of annotations and defaults what `namedtuple` makes, with the methods of the class."""

        def __new__(cls, name, bases, body):
            fields = body.get("__annotations__", {})
            defaults = [body[field] for field in fields if field in body]
            made = namedtuple(name, fields, defaults=defaults, module=body["__module__"])
            made.__annotations__ = fields
            for key, value in body.items():
                if key not in fields and key not in ("__annotations__", "__module__"):
                    setattr(made, key, value)
            return made

    NamedTuple = type.__new__(_Fields, "NamedTuple", (), {})
