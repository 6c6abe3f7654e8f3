"""The timeline as one SVG picture: states, output, and the moments that mattered.  A pure function."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...model.quantities import number, plural, size
from ...model.view import RunView
from .collect import Collector, Mark
from .markup import text
from .words import clock, outcome_words, span

_WIDTH = 1040
_LEFT, _RIGHT = 70, 14
_BAND_TOP, _BAND_HEIGHT = 8, 26
_UP, _DOWN = 74, 40  # room for stdout above the base line, and stderr below it
_BASE = _BAND_TOP + _BAND_HEIGHT + 18 + _UP
_MARKS = _BASE + _DOWN + 26
_LANES, _LANE = 3, 17
_LETTER = 6.6  # about the width of one, in the units of the picture


@dataclass(frozen=True, slots=True)
class Scale:
    """From seconds to the picture's x."""

    seconds: float

    def x(self, at: float) -> float:
        share = min(max(at / self.seconds, 0.0), 1.0)
        return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


def picture(view: RunView, seen: Collector) -> str:
    """The whole ``<svg>``; its title and description say the same for those who do not see it."""
    scale = Scale(max(seen.seconds, 0.001))
    signs, lanes = _signs(list(seen.marks), scale)
    foot = _MARKS + max(lanes, 1) * _LANE
    parts = [
        f'<svg class="pic" viewBox="0 0 {_WIDTH} {foot + 26}" role="img" aria-labelledby="pt pd">',
        f'<title id="pt">Timeline of the run</title><desc id="pd">{text(_described(view, seen))}</desc>',
        _axis(scale, foot),
        _band(seen, scale),
        _bars(seen, scale),
        _deadline(view, seen, scale, foot),
        signs,
        "</svg>",
    ]
    return "".join(parts)


def _described(view: RunView, seen: Collector) -> str:
    states = ", then ".join(f"{phase.state.value} from {clock(phase.seconds)}" for phase in seen.phases)
    marks = plural(sum(1 for _ in seen.marks) + seen.marks.left_out, "moment")
    return f"{states or 'no states logged'}; {marks} marked; {outcome_words(view)}, in {span(seen.seconds)}."


def _axis(scale: Scale, foot: int) -> str:
    parts = [f'<path class="ax" d="M{_LEFT} {foot}H{_WIDTH - _RIGHT}"/>']
    step = tick_step(scale.seconds)
    for index in range(int(scale.seconds / step * 1.000001) + 1):
        x, at = scale.x(index * step), index * step
        parts.append(f'<path class="grid" d="M{x} {_BAND_TOP + _BAND_HEIGHT + 6}V{foot}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{foot + 17}">{text(_tick(at, step))}</text>')
    return "".join(parts)


def tick_step(seconds: float) -> float:
    """Between the lines of the axis: 1, 2 or 5 times a power of ten, then whole minutes, hours, days."""
    wanted = seconds / 9
    for step in (60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400):
        if wanted > 30 and wanted <= step:
            return float(step)
    if wanted > 86400:
        return math.ceil(wanted / 86400) * 86400.0
    power = 10.0 ** math.floor(math.log10(wanted))
    found = next(factor for factor in (1, 2, 5, 10) if wanted <= factor * power * 1.000001) * power
    return 60.0 if found > 30 else found


def _tick(at: float, step: float) -> str:
    if step >= 60:
        return span(at).removesuffix(" 00s").removesuffix(" 00m").removesuffix(" 00h") if at else "0"
    if at and step < 0.001:
        return f"{at * 1000:g} ms"
    return f"{at * 1000:.0f} ms" if step < 0.1 and at < 1 and at else f"{at:g} s" if at else "0"


def _band(seen: Collector, scale: Scale) -> str:
    phases = list(seen.phases)
    parts = [f'<text class="lane" x="{_LEFT - 10}" y="{_BAND_TOP + 17}">state</text>']
    for index, phase in enumerate(phases):
        last = index + 1 == len(phases)
        x = scale.x(phase.seconds)
        end = scale.x(scale.seconds if last else phases[index + 1].seconds)
        width = max(round(end - x, 1), 4.0 if last else 1.0)
        x = min(x, _WIDTH - _RIGHT - width)
        word = phase.state.value
        parts.append(
            f'<rect class="st {word}" x="{x}" y="{_BAND_TOP}" width="{width}" height="{_BAND_HEIGHT}" rx="3">'
            f"<title>{text(word)} from {text(clock(phase.seconds))}</title></rect>"
        )
        if width > len(word) * _LETTER + 12:
            parts.append(f'<text class="in" x="{x + 8}" y="{_BAND_TOP + 17}">{text(word)}</text>')
    return "".join(parts)


def _bars(seen: Collector, scale: Scale) -> str:
    most, width = seen.rates.most, seen.rates.width
    parts = [
        f'<path class="ax" d="M{_LEFT} {_BASE}H{_WIDTH - _RIGHT}"/>',
        f'<text class="lane" x="{_LEFT - 10}" y="{_BASE - 6}">stdout</text>',
        f'<text class="lane" x="{_LEFT - 10}" y="{_BASE + 14}">stderr</text>',
    ]
    if not most:
        parts.append(f'<text class="note" x="{_LEFT + 8}" y="{_BASE - 8}">no output</text>')
        return "".join(parts)
    for stream, bins in sorted(seen.rates.bins.items()):
        up = stream != "stderr"
        outline = _outline(bins, width, most, scale, up=up)
        parts.append(f'<path class="{"so" if up else "se"}" d="{outline}"/>')
    rate = f"at most {size(most / width)}/s"
    parts.append(f'<text class="note end" x="{_WIDTH - _RIGHT}" y="{_BASE - _UP - 4}">{text(rate)}</text>')
    return "".join(parts)


def _outline(bins: list[int], width: float, most: int, scale: Scale, *, up: bool) -> str:
    """Every bar of one stream.  Heights are by square root: a trickle shows beside a flood."""
    parts = []
    for index, count in enumerate(bins):
        if not count:
            continue
        left, right = scale.x(index * width), scale.x((index + 1) * width)
        height = max(round(math.sqrt(count / most) * (_UP if up else _DOWN), 1), 1.5)
        top = round(_BASE - height, 1) if up else _BASE
        parts.append(f"M{left} {top}h{max(round(right - left - 0.6, 1), 0.8)}v{height}H{left}z")
    return "".join(parts)


def _deadline(view: RunView, seen: Collector, scale: Scale, foot: int) -> str:
    timeout = number(view.limits.get("timeout"))
    if timeout is None:
        return ""
    began = next((phase.seconds for phase in seen.phases if phase.state.value == "running"), 0.0)
    if began + timeout > scale.seconds * 1.001:
        return ""
    x = scale.x(began + timeout)
    words = f"timeout {span(timeout)}"
    return (
        f'<path class="due" d="M{x} {_BAND_TOP + _BAND_HEIGHT + 4}V{foot}"/>'
        f'<text class="note end" x="{x - 5}" y="{_BASE + _DOWN}">{text(words)}</text>'
    )


def _signs(marks: list[Mark], scale: Scale) -> tuple[str, int]:
    """A sign for each mark, with a label where there is room for it in a lane; how many lanes it took."""
    parts = [f'<text class="lane" x="{_LEFT - 10}" y="{_MARKS + 4}">events</text>']
    ends = [0.0] * _LANES
    for mark in marks:
        x = scale.x(mark.seconds)
        width = len(mark.label) * _LETTER + 22
        left = x + width > _WIDTH - _RIGHT  # its label stands before it
        begin, end = (x - width, x + 8) if left else (x - 8, x + width)
        lane = next((number for number in range(_LANES) if begin >= ends[number]), None)
        y = _MARKS + (lane if lane is not None else _LANES - 1) * _LANE
        parts.append(
            f'<g class="m {mark.shape}"><title>{text(mark.label)} at {text(clock(mark.seconds))}</title>'
            f'<path class="stem" d="M{x} {_BASE}V{y - 5}"/><path d="{_SHAPES[mark.shape](x, y)}"/>'
        )
        if lane is not None:
            ends[lane] = end
            side = f'class="end" x="{x - 9}"' if left else f'x="{x + 9}"'
            parts.append(f'<text {side} y="{y + 4}">{text(mark.label)}</text>')
        parts.append("</g>")
    return "".join(parts), sum(1 for end in ends if end)


_SHAPES = {
    "signal": lambda x, y: f"M{x} {y - 5.5}l5.5 10h-11z",
    "control": lambda x, y: f"M{x} {y - 6}l5.5 6l-5.5 6l-5.5 -6z",
    "limit": lambda x, y: f"M{x - 5} {y - 5}h10v10h-10z",
    "end": lambda x, y: f"M{x - 5} {y}a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
}
