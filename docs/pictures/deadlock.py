"""The deadlock of a join in a limited window, and how the report of left's watermark resolves it."""

from docs.pictures.canvas import BAD, CONTROL, FADED, GOOD, LEFT, RIGHT, Canvas, Tone

X0, X1 = 90, 640
PASSED = (2, 5, 8)
NEXT = (88, 91, 94)
RIGHT_TIMES = tuple(range(1, 100, 4))
BEFORE = 12


def deadlock() -> Canvas:
    """The same records twice: without the report, and with it."""
    canvas = Canvas(
        "The deadlock, and the report that resolves it",
        "Left has jumped far ahead of right. Without reports only left records that have passed expire right ones: the "
        "window fills, right cannot be read further, left waits for right. With the report of left's watermark right "
        "records that nothing can match any more expire at once, right reaches left's time, and left is joined.",
        1000,
        520,
    )
    _panel(canvas, 92, "Without reports: expiry by the left records that have passed", read=34, expiry=0)
    full, waits = ("The window is full:", "right is not read further"), ("Left waits:", "right is far behind")
    _reasons(canvas, 92, BAD, full, waits)
    canvas.arrow((712, 172), (712, 212), tone=BAD)
    canvas.arrow((940, 212), (940, 172), tone=BAD)
    canvas.text(826, 196, "so nothing expires", tone=BAD, at="middle")

    _panel(canvas, 326, "With reports: left's next time is known before left passes", read=97, expiry=NEXT[0] - BEFORE)
    _reasons(
        canvas,
        326,
        GOOD,
        ("Older right expires at once:", "the window stays small"),
        ("Right reaches left's time:", "left is joined"),
    )
    canvas.arrow((826, 406), (826, 446), tone=GOOD)
    return canvas


def _x(time: float) -> float:
    return X0 + (X1 - X0) * time / 100


def _panel(canvas: Canvas, y: float, name: str, read: float, expiry: float) -> None:
    reported = expiry > 0
    right, left = y + 62, y + 130
    canvas.text(24, y + 4, name, bold=True, size=15, tone=GOOD if reported else BAD)
    canvas.band(_x(expiry) - 6, right - 16, _x(read + 2) - _x(expiry) + 6, 32, RIGHT)
    for label, lane, tone in (("right", right, RIGHT), ("left", left, LEFT)):
        canvas.text(24, lane + 4, label, tone=tone)
        canvas.line((X0, lane), (X1, lane), tone=FADED)
    for time in RIGHT_TIMES:
        canvas.dot(_x(time), right, FADED if time < expiry else RIGHT, hollow=time > read)
    for time in PASSED:
        canvas.dot(_x(time), left, FADED)
    for time in NEXT:
        canvas.dot(_x(time), left, LEFT, hollow=not reported)
    canvas.text(_x(PASSED[0]) - 5, left + 26, "passed", tone=FADED)
    canvas.text(X1, left + 44, "event time →", at="end", bold=True)
    if reported:
        canvas.text(_x(expiry) - 12, right - 24, "expired when read: nothing to come matches", tone=FADED, at="end")
        canvas.text(_x(expiry) - 2, right - 24, "window", tone=RIGHT)
        across = left - 32
        points = ((_x(NEXT[0]), left - 8), (_x(NEXT[0]), across), (_x(expiry), across), (_x(expiry), right + 16))
        canvas.arrow(*points, tone=LEFT, dashed=True)
        canvas.text(_x(expiry) - 10, left - 27, "report: next left record − before", tone=LEFT, at="end")
        canvas.text(_x(NEXT[1]), left + 26, "joined", tone=LEFT, at="middle")
    else:
        canvas.text(_x(0), right - 24, "window: full", tone=RIGHT)
        canvas.text(_x(read + 4), right - 24, "unread", tone=CONTROL)
        canvas.text(_x(NEXT[1]), left + 26, "waiting", tone=LEFT, at="middle")


def _reasons(canvas: Canvas, y: float, tone: Tone, *boxes: tuple[str, str]) -> None:
    for number, (title, line) in enumerate(boxes):
        canvas.box(690, y + 24 + 96 * number, 272, 56, title, line, tone=tone)
