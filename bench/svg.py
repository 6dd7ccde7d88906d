# SPDX-License-Identifier: BSD-2-Clause
"""A line chart on two logarithmic axes, as SVG: message sizes to the right, figures upwards, each line named
at its end."""
import math
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 820, 440
LEFT, RIGHT, TOP, BOTTOM = 84, 200, 56, 56
LABEL_STEP = 17  # least distance of two names
OWN_COLOURS = ("#0b6e99", "#c2410c", "#15803d")
PEER_COLOURS = ("#6b7280", "#a78bba", "#b3a369")

STYLE = """text { font: 13px sans-serif; fill: #374151 } .title { font-size: 16px; font-weight: bold; fill: #111827 }
.grid { stroke: #e5e7eb; stroke-width: 1 } .line { fill: none; stroke-width: 2.5 }
.peer { stroke-dasharray: 6 4; stroke-width: 2 }"""


class Scale:
    """A logarithmic axis from `low` to `high`, drawn from `start` to `end`; of one value alone, at the start."""

    def __init__(self, low, high, start, end):
        self.low, self.start = math.log(low), start
        self.step = (end - start) / (math.log(high) - self.low) if high > low else 0.0

    def at(self, value):
        return self.start + (math.log(value) - self.low) * self.step


def ticks(low, high):
    """1, 2, 5, 10, 20 … from the last at or below `low` to the first at or above `high`; powers of ten where
    that is too many."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    steps = (1, 2, 5) if last - first <= 3 else (1,)
    values = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    above = next(value for value in values if value >= high)
    below = max((value for value in values if value <= low), default=values[0])
    return [value for value in values if below <= value <= above]


def text(x, y, words, anchor="start", kind=""):
    chosen = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"{chosen}>{escape(words)}</text>'


def spread(wanted):
    """Places for names, in the order of `wanted`, none nearer to another than LABEL_STEP."""
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    places = dict.fromkeys(order, 0.0)
    last = -math.inf
    for index in order:
        last = places[index] = max(wanted[index], last + LABEL_STEP)
    overhang = max(0.0, last - (HEIGHT - BOTTOM))
    return [places[index] - overhang for index in range(len(wanted))]


def chart(title, series, show_size, show_value):
    """`series`: (name, is it ours, [(size, value), …]) each; the two functions give the axes' words."""
    sizes = sorted({size for _, _, points in series for size, _ in points})
    values = [value for _, _, points in series for _, value in points]
    marks = ticks(min(values), max(values))
    x = Scale(sizes[0], sizes[-1], LEFT, WIDTH - RIGHT)
    y = Scale(marks[0], marks[-1], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        text(LEFT, 30, title, kind="title"),
        *grid(x, y, sizes, marks, show_size, show_value),
        *lines(x, y, series),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def grid(x, y, sizes, marks, show_size, show_value):
    for mark in marks:
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y.at(mark):.1f}" y2="{y.at(mark):.1f}"/>'
        yield text(LEFT - 10, y.at(mark) + 4, show_value(mark), "end")
    for size in sizes:
        yield f'<line class="grid" y1="{TOP}" y2="{HEIGHT - BOTTOM}" x1="{x.at(size):.1f}" x2="{x.at(size):.1f}"/>'
        yield text(x.at(size), HEIGHT - BOTTOM + 22, show_size(size), "middle")
    yield text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "message size", "middle")


def lines(x, y, series):
    labels = spread([y.at(points[-1][1]) for _, _, points in series])
    colours = {True: iter(OWN_COLOURS), False: iter(PEER_COLOURS)}
    for (name, ours, points), label in zip(series, labels):
        colour = next(colours[ours])
        places = [(x.at(size), y.at(value)) for size, value in points]
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
        yield f'<polyline class="line{"" if ours else " peer"}" stroke="{colour}" points="{path}"/>'
        yield from (f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in places)
        yield f'<text x="{WIDTH - RIGHT + 12}" y="{label + 4:.0f}" style="fill: {colour}">{escape(name)}</text>'


# ---- ratios ----

NAMES, ROW_HEIGHT, BAR_HEIGHT = 330, 22, 12
STYLE_OF_RATIOS = """.met { fill: #15803d } .missed { fill: #c2410c } .goal { stroke: #111827; stroke-width: 2 }"""


def ratios(title, rows, show_ratio):
    """A bar for each row's ratio to its peer, from 1 on, to the right where it is more, with a mark at its goal."""
    goals = [next(iter(row["goal"].values())) for row in rows]
    values = [*goals, *(row["judged"] for row in rows), 1]
    marks = ticks(min(values) * 0.9, max(values) * 1.1)
    x = Scale(marks[0], marks[-1], NAMES, WIDTH - 70)
    height = TOP + ROW_HEIGHT * len(rows) + 40
    bottom = TOP + ROW_HEIGHT * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f"<style>{STYLE} {STYLE_OF_RATIOS}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        text(20, 30, title, kind="title"),
    ]
    for mark in marks:
        parts.append(f'<line class="grid" y1="{TOP}" y2="{bottom}" x1="{x.at(mark):.1f}" x2="{x.at(mark):.1f}"/>')
        parts.append(text(x.at(mark), bottom + 20, show_ratio(mark), "middle"))
    for number, (row, goal) in enumerate(zip(rows, goals)):
        parts += bar(x, TOP + ROW_HEIGHT * number, row, goal, show_ratio)
    return "\n".join([*parts, "</svg>"]) + "\n"


def bar(x, top, row, goal, show_ratio):
    middle = top + ROW_HEIGHT / 2
    left, right = sorted((x.at(1), x.at(row["judged"])))
    kind = "met" if row["met"] else "missed"
    yield text(NAMES - 12, middle + 4, row["what"], "end")
    yield (
        f'<rect class="{kind}" x="{left:.1f}" y="{middle - BAR_HEIGHT / 2:.1f}" '
        f'width="{max(right - left, 1):.1f}" height="{BAR_HEIGHT}"/>'
    )
    yield (
        f'<line class="goal" x1="{x.at(goal):.1f}" x2="{x.at(goal):.1f}" '
        f'y1="{middle - BAR_HEIGHT:.1f}" y2="{middle + BAR_HEIGHT:.1f}"/>'
    )
    yield text(max(right, x.at(goal)) + 6, middle + 4, show_ratio(row["judged"]))
