"""xterm's palette of 256 colours: 16 that a theme may choose, a cube of 6x6x6, and 24 greys."""

from __future__ import annotations

_STEPS = (0, 95, 135, 175, 215, 255)


def rgb(number: int) -> tuple[int, int, int]:
    """Red, green and blue of a colour from 16 to 255."""
    if number >= 232:
        grey = 8 + 10 * (number - 232)
        return grey, grey, grey
    cell = number - 16
    return _STEPS[cell // 36], _STEPS[cell // 6 % 6], _STEPS[cell % 6]


def nearest(red: int, green: int, blue: int) -> int:
    """The colour of the cube or the greys that is nearest: a page needs no more than 240 of them."""
    cube = 16 + 36 * _step(red) + 6 * _step(green) + _step(blue)
    grey = 232 + min(max((round((red + green + blue) / 3) - 8 + 5) // 10, 0), 23)
    return min((cube, grey), key=lambda number: _distance(rgb(number), (red, green, blue)))


def _step(value: int) -> int:
    return min(range(6), key=lambda index: abs(_STEPS[index] - value))


def _distance(one: tuple[int, int, int], other: tuple[int, int, int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
