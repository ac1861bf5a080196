"""Draw the Mermaid diagrams of the documentation as SVG, so that the site loads no script for them.

A part of Mermaid is read: `sequenceDiagram` with participants and messages, and `flowchart TD`
with boxes and arrows. Any other line is refused, which ends the build of the site.
"""

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

FENCE = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHARACTER, LINE, PADDING = 7.0, 18.0, 12.0
"""Mean width of a character, height of a line and space around text, pixels."""
HEAD_LENGTH, HEAD_WIDTH = 8.0, 4.0
"""Length and half width of the head of an arrow, pixels."""
LAYER_GAP, BOX_GAP, MESSAGE_GAP = 26.0, 24.0, 38.0
"""Space between layers, between boxes, and between messages, pixels."""
LOOP = 28.0
"""Width of a message from a participant to itself, pixels."""

PARTICIPANT = re.compile(r"participant (\w+)(?: as (.+))?")
MESSAGE = re.compile(r"(\w+)(--?)>>(\w+): (.+)")
NODE = r'(\w+)(?:\["([^"]+)"\])?'
ARROW = re.compile(rf"{NODE} --> {NODE}")


class Message(NamedTuple):
    """An arrow between two lifelines, by the numbers of their participants."""

    source: int
    target: int
    text: str
    is_dashed: bool


class Box(NamedTuple):
    """A box of a flowchart: its centre, its width and its text."""

    x: float
    y: float
    width: float
    text: str


def drawn(markdown: str) -> str:
    """Return a page's text with its Mermaid diagrams as SVG; raise `ValueError` for other lines."""
    return FENCE.sub(lambda fence: figure(fence[1]), markdown)


def figure(source: str) -> str:
    """Return the SVG of one diagram."""
    kind, *lines = [line.strip() for line in source.splitlines() if line.strip()]
    if kind == "sequenceDiagram":
        return sequence(lines)
    if kind == "flowchart TD":
        return flowchart(lines)
    raise ValueError(f"no diagram of the kind {kind!r}; take sequenceDiagram or flowchart TD")


def svg(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    """Return a drawing in the colour of the text around it."""
    return (
        f'<figure><svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" role="img" '
        f'aria-label="{escape(title)}" style="max-width: 100%" font-size="13" '
        f'fill="currentColor" stroke="none" text-anchor="middle">{"".join(parts)}</svg></figure>'
    )


def text(x: float, y: float, content: str, anchor: str = "middle") -> str:
    """Return a line of text whose middle has the height y."""
    start = "" if anchor == "middle" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y + 4.5:.1f}"{start}>{escape(content)}</text>'


def box(one: Box) -> str:
    """Return a box with its text."""
    height = LINE + PADDING
    return (
        f'<rect x="{one.x - one.width / 2:.1f}" y="{one.y - height / 2:.1f}" '
        f'width="{one.width:.1f}" height="{height:.1f}" rx="4" fill-opacity="0.07" '
        f'stroke="currentColor" stroke-opacity="0.6"/>{text(one.x, one.y, one.text)}'
    )


def line(points: Sequence[tuple[float, float]], *, is_dashed: bool = False) -> str:
    """Return a line through points."""
    shown = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashes = ' stroke-dasharray="5 4"' if is_dashed else ""
    return f'<polyline points="{shown}" fill="none" stroke="currentColor"{dashes}/>'


def arrow(points: Sequence[tuple[float, float]], *, is_dashed: bool = False) -> str:
    """Return a line through points with a head at its end."""
    (x0, y0), (x1, y1) = points[-2:]
    length = max(((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5, 1.0)
    dx, dy = (x1 - x0) / length, (y1 - y0) / length
    x, y = x1 - HEAD_LENGTH * dx, y1 - HEAD_LENGTH * dy
    corners = (x1, y1), (x - HEAD_WIDTH * dy, y + HEAD_WIDTH * dx)
    shown = " ".join(
        f"{a:.1f},{b:.1f}" for a, b in (*corners, (2 * x - corners[1][0], 2 * y - corners[1][1]))
    )
    return line(points, is_dashed=is_dashed) + f'<polygon points="{shown}"/>'


def width_of(content: str) -> float:
    """Return the width of a text with the space around it, pixels."""
    return CHARACTER * len(content) + 2 * PADDING


# -- sequences


def sequence(lines: Sequence[str]) -> str:
    """Return the drawing of participants and messages between them."""
    names: dict[str, str] = {}
    messages: list[Message] = []
    for each in lines:
        if match := PARTICIPANT.fullmatch(each):
            names[match[1]] = match[2] or match[1]
        elif (match := MESSAGE.fullmatch(each)) and {match[1], match[3]} <= names.keys():
            source, target = (list(names).index(match[k]) for k in (1, 3))
            messages.append(Message(source, target, match[4], is_dashed=match[2] == "--"))
        else:
            raise ValueError(f"cannot draw the line {each!r} of a sequenceDiagram")
    at = lifelines([*names.values()], messages)
    top = LINE + PADDING
    bottom = top + MESSAGE_GAP * (len(messages) + 1)
    parts = [line([(x, top), (x, bottom)], is_dashed=True) for x in at]
    parts += [
        box(Box(x, top / 2 + 1, width_of(name), name))
        for x, name in zip(at, names.values(), strict=True)
    ]
    for k, one in enumerate(messages, start=1):
        parts += message(one, at, top + MESSAGE_GAP * k)
    loops = [
        at[-1] + LOOP + width_of(m.text) for m in messages if m.source == m.target == len(at) - 1
    ]
    width = max([at[-1] + width_of([*names.values()][-1]) / 2, *loops]) + 1
    return svg(width, bottom, f"Messages between {', '.join(names.values())}", parts)


def lifelines(names: Sequence[str], messages: Sequence[Message]) -> list[float]:
    """Return the place of each participant, so far apart that texts fit between them."""
    gaps = [(width_of(a) + width_of(b)) / 2 + PADDING for a, b in pairwise(names)]
    for one in sorted(messages, key=lambda one: abs(one.source - one.target)):
        first, last = sorted((one.source, one.target))
        needed = width_of(one.text)
        if first == last:
            last, needed = min(first + 1, len(gaps)), needed + LOOP
        missing = needed - sum(gaps[first:last])
        for k in range(first, last):
            gaps[k] += max(missing, 0.0) / (last - first)
    at = [width_of(names[0]) / 2 + 1]
    for gap in gaps:
        at.append(at[-1] + gap)
    return at


def message(one: Message, at: Sequence[float], y: float) -> Iterator[str]:
    """Yield the arrow of a message and its text."""
    start, end = at[one.source], at[one.target]
    if one.source == one.target:
        loop = [(start, y - 8), (start + LOOP, y - 8), (start + LOOP, y + 8), (start, y + 8)]
        yield arrow(loop, is_dashed=one.is_dashed)
        yield text(start + LOOP + PADDING / 2, y, one.text, "start")
    else:
        yield arrow([(start, y), (end, y)], is_dashed=one.is_dashed)
        yield text((start + end) / 2, y - 10, one.text)


# -- flowcharts


def flowchart(lines: Sequence[str]) -> str:
    """Return the drawing of boxes in layers, with arrows from each layer to lower ones."""
    texts: dict[str, str] = {}
    arrows: list[tuple[str, str]] = []
    for each in lines:
        match = ARROW.fullmatch(each)
        if not match:
            raise ValueError(f"cannot draw the line {each!r} of a flowchart")
        for name, content in ((match[1], match[2]), (match[3], match[4])):
            texts[name] = content or texts.get(name, name)
        arrows.append((match[1], match[3]))
    boxes, width, height = laid_out(texts, depths(texts, arrows))
    half = (LINE + PADDING) / 2
    parts = [
        arrow([(boxes[a].x, boxes[a].y + half), (boxes[b].x, boxes[b].y - half)]) for a, b in arrows
    ]
    parts += map(box, boxes.values())
    return svg(width, height, f"From {' to '.join(texts)}", parts)


def depths(texts: dict[str, str], arrows: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the layer of each box: one below the lowest box with an arrow to it."""
    depth = dict.fromkeys(texts, 0)
    for _ in texts:
        for above, below in arrows:
            depth[below] = max(depth[below], depth[above] + 1)
    if any(depth[below] <= depth[above] for above, below in arrows):
        raise ValueError("cannot draw a flowchart whose arrows run in a circle")
    return depth


def laid_out(texts: dict[str, str], depth: dict[str, int]) -> tuple[dict[str, Box], float, float]:
    """Return the boxes by name, and the width and the height of the drawing."""
    layers = [[name for name in texts if depth[name] == k] for k in range(max(depth.values()) + 1)]
    widths = [
        sum(width_of(texts[n]) for n in layer) + BOX_GAP * (len(layer) - 1) for layer in layers
    ]
    step, boxes = LINE + PADDING + LAYER_GAP, {}
    for k, (layer, width) in enumerate(zip(layers, widths, strict=True)):
        left = (max(widths) - width) / 2 + 1
        for name in layer:
            own = width_of(texts[name])
            boxes[name] = Box(left + own / 2, (LINE + PADDING) / 2 + 1 + k * step, own, texts[name])
            left += own + BOX_GAP
    return boxes, max(widths) + 2, len(layers) * step - LAYER_GAP + 2


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return the text of a page with its diagrams drawn, as MkDocs calls it."""
    return drawn(markdown)
