"""Batch plan over event time: what left waits for, and what expires."""

from collections.abc import Sequence

from docs.pictures.canvas import CONTROL, FADED, LEFT, RIGHT, Canvas

BEFORE, AFTER = 24, 6
"""Of the join that is drawn, on the scale of the picture; both sides have no disorder."""
RIGHT_0 = (6, 14, 22, 33, 42, 51, 61, 68, 76, 84, 92)
RIGHT_1 = (10, 18, 29, 38, 46, 55, 64, 73, 81, 89, 96)
LEFT_0 = (12, 20, 26, 34, 41, 47, 53, 60, 71, 82, 93)
X0, SCALE = 150, 8.2


def batch_plan() -> Canvas:
    """Two batches, one below the other, over the same records."""
    canvas = Canvas(
        "Batch plan: left waits for right, right expires behind left",
        "Two batches over event time. Right's watermark is the smallest of its partitions' watermarks. Left records "
        "whose time plus after lies below it are admitted, later ones are held. Right records older than the next left "
        "record's time minus before expire.",
        1000,
        650,
    )
    first = _batch(canvas, 96, "Batch n", (62, 50), since=36)
    _batch(canvas, 344, "Batch n + 1", (84, 78), since=first)
    _legend(canvas, 590)
    return canvas


def _x(time: float) -> float:
    return X0 + SCALE * time


def _next(times: Sequence[int], read: float) -> int:
    return min(time for time in times if time > read)


def _batch(canvas: Canvas, y: float, name: str, read: tuple[int, int], since: float) -> float:
    """One panel: right is read up to `read`, left was admitted below `since` before. Returns left's new limit."""
    lanes = {"right, partition 0": y + 42, "right, partition 1": y + 84, "left": y + 146}
    watermark = min(_next(RIGHT_0, read[0]), _next(RIGHT_1, read[1]))
    limit = watermark - AFTER
    next_left = min(time for time in LEFT_0 if time >= limit)
    expiry = next_left - BEFORE
    canvas.text(24, y + 8, name, bold=True, size=15)
    right, left = lanes["right, partition 0"], lanes["left"]
    for lane, up_to in zip((right, right + 42), read, strict=True):
        canvas.band(_x(expiry), lane - 14, _x(up_to + 1) - _x(expiry), 28, RIGHT)
    for label, lane in lanes.items():
        canvas.text(24, lane + 4, label, tone=LEFT if label == "left" else RIGHT)
        canvas.line((X0, lane), (976, lane), tone=FADED)
    for times, lane, up_to in ((RIGHT_0, right, read[0]), (RIGHT_1, right + 42, read[1])):
        for time in times:
            canvas.dot(_x(time), lane, FADED if time < expiry else RIGHT, hollow=time > up_to)
    for time in LEFT_0:
        canvas.dot(_x(time), left, FADED if time < since else LEFT, hollow=time >= limit)
    canvas.line((_x(watermark), y + 18), (_x(watermark), left + 12), tone=RIGHT, dashed=True)
    canvas.text(_x(watermark), y + 8, "right watermark: right is complete below", tone=RIGHT, at="middle")
    canvas.line((_x(limit), left - 32), (_x(limit), left + 16), tone=LEFT)
    canvas.text(_x(limit) - 6, left + 32, "admitted below: watermark − after", tone=LEFT, at="end")
    canvas.line((_x(expiry), y + 18), (_x(expiry), left - 32), tone=CONTROL, dashed=True)
    canvas.text(_x(expiry) - 6, left - 26, "expired below: next left − before", at="end")
    canvas.line((_x(next_left), left + 8), (_x(next_left), left + 42), tone=LEFT, dashed=True)
    canvas.text(_x(next_left), left + 56, "next left: left's watermark", tone=LEFT, at="middle")
    return limit


def _legend(canvas: Canvas, y: float) -> None:
    canvas.line((24, y - 26), (976, y - 26), tone=FADED)
    rows = [
        (RIGHT, False, "right record in the window"),
        (RIGHT, True, "right record not read yet"),
        (FADED, False, "expired, or joined in an earlier batch"),
    ]
    for number, (tone, hollow, words) in enumerate(rows):
        x = 40 + number * 300
        canvas.dot(x, y, tone, hollow=hollow)
        canvas.text(x + 14, y + 4, words)
    for number, words in enumerate(["left record admitted by this batch", "left record held back"]):
        x = 40 + number * 300
        canvas.dot(x, y + 28, LEFT, hollow=number == 1)
        canvas.text(x + 14, y + 32, words)
    canvas.text(976, y + 32, "event time →", at="end", bold=True)
