"""Searches what goes through it for secrets, in every form: streams, documents and raw files."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from .audit import MOST_PLACES, AuditPlace, AuditReport
from .disguises import disguises
from .events import Event, Kind
from .secrets import redact_text

_Key = tuple[int, str, str, str, int | None]  # of an `AuditPlace`, but for its count
_SeqAt = Callable[[int], int]


class Sieve:
    """Collects an `AuditReport`.  ``secrets`` as `audit.checked_secrets` gives them."""

    def __init__(self, secrets: Sequence[bytes]) -> None:
        self._secrets = len(secrets)
        self._needles = [
            (needle, number, form)
            for number, secret in enumerate(secrets, start=1)
            for needle, form in disguises(secret).items()
        ]
        self._overlap = max(len(needle) for needle, _, _ in self._needles) - 1
        self._streams: dict[str, _Stream] = {}
        self._places: dict[_Key, int] = {}
        self._known: set[tuple[int, str]] = set()  # (secret, form) that were found
        self._found = self._events = self._bytes = 0
        self.problems: list[str] = []

    def report(self, run_id: str) -> AuditReport:
        places = tuple(AuditPlace(*key, count) for key, count in self._places.items())
        return AuditReport(
            run_id, self._secrets, self._events, self._bytes, self._found, places, tuple(self.problems)
        )

    def page(self, events: Iterable[Event]) -> None:
        """Events, in order, from page to page.  Output is searched across the borders of events."""
        for event in events:
            self._events += 1
            if event.kind == Kind.OUTPUT:
                self._stream(str(event.detail["stream"])).add(event)
            else:
                self.document("event", event.detail, event.seq)
        for name, stream in self._streams.items():
            self._search_stream(name, stream)

    def document(self, where: str, form: object, seq: int | None = None) -> None:
        """Every name and every text in a document of JSON's types."""
        for path, text in _texts("", form):
            data = _encoded(text)
            self._bytes += len(data)
            for needle, number, form_name in self._needles:
                if count := data.count(needle):
                    self._add((number, form_name, where, self._shown(path), seq), count)

    def raw(self, name: str, chunks: Iterable[bytes]) -> None:
        """A file as it is.  What it holds of what was found already is not told again."""
        kept, counts = b"", dict.fromkeys(self._needles, 0)
        for chunk in chunks:
            data = kept + chunk
            for needle in counts:
                counts[needle] += sum(1 for at in _each(data, needle[0]) if at + len(needle[0]) > len(kept))
            kept = data[-self._overlap :]
            self._bytes += len(chunk)
        news = {needle: count for needle, count in counts.items() if count and needle[1:] not in self._known}
        for (_, number, form), count in news.items():
            self._add((number, form, "file", self._shown(name), None), count)

    def _stream(self, name: str) -> _Stream:
        return self._streams.setdefault(name, _Stream())

    def _search_stream(self, name: str, stream: _Stream) -> None:
        for data, old, seq_at in stream.take(self._overlap):
            self._bytes += len(data) - old
            for needle, number, form in self._needles:
                for at in _each(data, needle):
                    if at + len(needle) > old:
                        self._add((number, form, "output", name, seq_at(at)), 1)

    def _add(self, key: _Key, count: int) -> None:
        self._found += count
        self._known.add(key[:2])
        if key in self._places or len(self._places) < MOST_PLACES:
            self._places[key] = self._places.get(key, 0) + count

    def _shown(self, path: str) -> str:
        """A name may be what is looked for."""
        sought = [needle.decode("utf-8", "surrogateescape") for needle, _, _ in self._needles]
        return redact_text(path, sought)


class _Stretch:
    """Output without a gap: its bytes, and where in them each event begins."""

    __slots__ = ("end", "offsets", "parts", "seqs", "size")

    def __init__(self, offset: int) -> None:
        self.parts: list[bytes] = []
        self.offsets: list[int] = []
        self.seqs: list[int] = []
        self.size = 0
        self.end = offset  # in the stream

    def add(self, seq: int, data: bytes) -> None:
        self.offsets.append(self.size)
        self.seqs.append(seq)
        self.parts.append(data)
        self.size += len(data)
        self.end += len(data)

    def seq_at(self, at: int) -> int:
        return self.seqs[bisect_right(self.offsets, at) - 1]

    def tail(self, count: int) -> _Stretch:
        """Its last bytes, as the beginning of the next one."""
        data = b"".join(self.parts)
        begin = max(len(data) - count, 0)
        kept = _Stretch(self.end - (len(data) - begin))
        first = bisect_right(self.offsets, begin) - 1
        for seq, start, part in zip(self.seqs[first:], self.offsets[first:], self.parts[first:], strict=True):
            kept.add(seq, part[max(begin - start, 0) :])
        return kept


class _Stream:
    """One stream's output, in stretches: what was dropped in between joins nothing."""

    def __init__(self) -> None:
        self._stretches: list[_Stretch] = []
        self._old = 0  # bytes of the first one that were searched already

    def add(self, event: Event) -> None:
        offset = event.detail["offset"]
        if not isinstance(offset, int):
            raise TypeError("an offset is a number")
        if not self._stretches or self._stretches[-1].end != offset:
            self._stretches.append(_Stretch(offset))
        self._stretches[-1].add(event.seq, event.data)

    def take(self, overlap: int) -> Iterator[tuple[bytes, int, _SeqAt]]:
        """The bytes, how many of them are old, and whose a position is; then only the overlap stays."""
        stretches, old = self._stretches, self._old
        for stretch in stretches:
            if stretch.size > old:
                yield b"".join(stretch.parts), old, stretch.seq_at
            old = 0
        if stretches:
            self._stretches = [stretches[-1].tail(overlap)]
            self._old = self._stretches[0].size


def _each(data: bytes, needle: bytes) -> Iterator[int]:
    at = data.find(needle)
    while at >= 0:
        yield at
        at = data.find(needle, at + len(needle))


def _texts(path: str, form: object) -> Iterator[tuple[str, str]]:
    """Every text in a document, with its path: ``argv[2]``, ``labels.team``."""
    if isinstance(form, str):
        yield path, form
    elif isinstance(form, Mapping):
        for name, value in form.items():
            inner = f"{path}.{name}" if path else str(name)
            yield inner, str(name)
            yield from _texts(inner, value)
    elif isinstance(form, list | tuple):
        for index, value in enumerate(form):
            yield from _texts(f"{path}[{index}]", value)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # a lone surrogate that stands for no byte
        return text.encode("utf-8", "surrogatepass")
