"""A receipt's life: a crash after the commit of a transaction, and one before it."""

from docs.pictures.canvas import BAD, CONTROL, FADED, GOOD, Canvas, Tone


def receipt() -> Canvas:
    """Time runs to the right: the first attempt, the crash, the second attempt."""
    canvas = Canvas(
        "A receipt's life: batch 17 is run twice, its rows are in the output once",
        "Rows and receipt are committed in one Kafka transaction. Killed after the commit, the next attempt finds the "
        "receipt of batch 17 and skips its rows. Killed before the commit, fencing aborts the transaction, the receipt "
        "is still that of batch 16, and the rows are produced again.",
        1000,
        560,
    )
    _panel(canvas, 84, "Killed after the commit", committed=True)
    _panel(canvas, 326, "Killed before the commit", committed=False)
    return canvas


def _panel(canvas: Canvas, y: float, name: str, committed: bool) -> None:
    first, log, second = y + 22, y + 92, y + 162
    canvas.text(24, y + 4, name, bold=True, size=15)
    for words, lane in (("attempt 1", first), ("in Kafka", log), ("attempt 2", second)):
        canvas.text(24, lane + 27, words, tone=CONTROL)
    _steps(canvas, 124, first, [("fence", ""), ("read receipt", "16 done"), ("produce", "rows of 17")])
    dead = 572 if committed else 464
    if committed:
        _steps(canvas, 448, first, [("commit", "")])
    canvas.cross(dead + 22, first + 23)
    canvas.text(dead + 40, first + 28, "killed before Spark committed batch 17" if committed else "killed", tone=BAD)

    canvas.box(124, log, 100, 46, "rows of 16", tone=FADED)
    canvas.box(228, log, 96, 46, "receipt 16", tone=FADED)
    if committed:
        canvas.box(340, log, 100, 46, "rows of 17", tone=GOOD)
        canvas.box(444, log, 96, 46, "receipt 17", tone=GOOD)
        canvas.arrow((500, first + 46), (500, log), tone=GOOD)
        canvas.arrow((500, log + 46), (500, second - 12), (700, second - 12), (700, second), tone=GOOD)
        canvas.text(554, log + 28, "both in one transaction", tone=GOOD)
        steps = [("fence", ""), ("read receipt", "17 done"), ("skip rows", "count them"), ("Spark", "commits 17")]
    else:
        canvas.box(340, log, 100, 46, "rows of 17", tone=BAD)
        canvas.arrow((592, second), (592, log + 23), (440, log + 23), tone=BAD)
        canvas.text(452, log + 15, "aborted by fencing", tone=BAD)
        steps = [("fence", ""), ("read receipt", "16 done"), ("produce", "rows of 17"), ("commit", "")]
        canvas.box(776, log, 100, 46, "rows of 17", tone=GOOD)
        canvas.box(880, log, 96, 46, "receipt 17", tone=GOOD)
        canvas.arrow((916, second), (916, log + 46), tone=GOOD)
    _steps(canvas, 540, second, steps)


def _steps(canvas: Canvas, x: float, y: float, steps: list[tuple[str, str]], tone: Tone = CONTROL) -> None:
    for number, (title, line) in enumerate(steps):
        canvas.box(x + 108 * number, y, 104, 46, title, *([line] if line else []), tone=tone)
