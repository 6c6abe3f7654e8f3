"""Compact ASCII JSON, by an encoder that is made once.

`json.JSONEncoder.encode` makes itself a C encoder for each call, which takes several times as long as
encoding a small document does; a run takes some twenty of them.
"""

from __future__ import annotations

import json
from json import encoder as _parts

TYPE_CHECKING = False  # importing typing would cost every worker's start some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable


def compact_encoder(*, sort_keys: bool = False, allow_nan: bool = True) -> Callable[[object], str]:
    """What writes a document as `json.JSONEncoder` does with these options, and separators without spaces.

    ASCII: a lone surrogate (an undecodable byte of argv or a path) becomes ``\\udcXX``.  The document
    must not contain itself.  Raises TypeError for what is no JSON, ValueError for NaN that is not allowed.
    """
    plain = json.JSONEncoder(sort_keys=sort_keys, allow_nan=allow_nan, separators=(",", ":"))
    # As `JSONEncoder.iterencode` makes it.  It has no public name, so do without where it is another.
    make = getattr(_parts, "c_make_encoder", None)
    options = (None, ":", ",", sort_keys, False, allow_nan)
    try:
        pieces = make(None, plain.default, _parts.encode_basestring_ascii, *options)  # type: ignore[misc]
    except TypeError:
        return plain.encode
    join = "".join
    return lambda document: join(pieces(document, 0))
