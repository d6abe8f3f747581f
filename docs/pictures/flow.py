"""The in-memory join: how records, plans and results flow through one batch."""

from docs.pictures.canvas import GOOD, LEFT, RIGHT, Canvas


def flow() -> Canvas:
    """Driver on top, tasks in the middle, Kafka on both sides."""
    canvas = Canvas(
        "One batch of the in-memory join",
        "The driver plans from end offsets and the last batch's facts what each partition may be read to. One task per "
        "bucket adds right records to the window, matches left records, and writes rows, side topics and a receipt in "
        "one Kafka transaction. The driver checks the counts and commits the batch in the checkpoint.",
        1000,
        520,
    )
    canvas.frame(250, 82, 726, 118, "Spark driver")
    canvas.box(270, 100, 210, 84, "Batch plan (SyncBolt)", "how far right may be read,", "and left after it")
    canvas.box(560, 100, 170, 84, "Checkpoint", "plan of each batch,", "its facts, its commit")
    canvas.box(800, 100, 160, 84, "Gather", "do all counts agree?", "then commit")
    canvas.arrow((480, 128), (560, 128))
    canvas.text(520, 121, "plan", at="middle")
    canvas.arrow((560, 158), (480, 158), dashed=True)
    canvas.text(520, 175, "facts", at="middle")
    canvas.arrow((800, 142), (730, 142))
    canvas.text(765, 135, "commit", at="middle")

    canvas.text(24, 263, "Kafka: input topics", bold=True)
    canvas.box(24, 290, 160, 64, "Left", "clicks", tone=LEFT)
    canvas.box(24, 406, 160, 64, "Right", "impressions", tone=RIGHT)
    canvas.arrow((104, 247), (104, 142), (270, 142), dashed=True)
    canvas.text(114, 134, "end offsets, times", at="start")

    canvas.frame(250, 270, 440, 220, "Spark executor: one task per bucket")
    canvas.box(270, 290, 184, 64, "Left range", "below watermark − after", tone=LEFT)
    canvas.box(270, 406, 184, 64, "Right range", "becomes a slice", tone=RIGHT)
    canvas.box(510, 290, 160, 64, "Match", "probes the slices", tone=GOOD)
    canvas.box(510, 406, 160, 64, "Window (JoinBolt)", "slices still needed", tone=RIGHT)
    canvas.arrow((184, 322), (270, 322), tone=LEFT)
    canvas.arrow((184, 438), (270, 438), tone=RIGHT)
    canvas.arrow((454, 322), (510, 322), tone=LEFT)
    canvas.arrow((454, 438), (510, 438), tone=RIGHT)
    canvas.arrow((590, 406), (590, 354), tone=RIGHT)
    canvas.text(600, 384, "candidates", tone=RIGHT)
    canvas.arrow((400, 200), (400, 247))
    canvas.text(410, 229, "one ticket per bucket")

    canvas.frame(766, 270, 210, 220, "One Kafka transaction", tone=GOOD)
    canvas.box(782, 286, 178, 64, "Output topic", "matched, unmatched", tone=GOOD)
    canvas.box(782, 362, 178, 72, "Side topics", "unmatched, late,", "unjoined, dead letter")
    canvas.box(782, 446, 178, 32, "Receipt", tone=GOOD)
    canvas.arrow((670, 322), (782, 322), tone=GOOD)
    canvas.text(728, 314, "rows", tone=GOOD, at="middle")
    canvas.arrow((670, 420), (782, 420))
    canvas.text(728, 440, "expired", at="middle")
    canvas.arrow((880, 247), (880, 184))
    canvas.text(890, 229, "counts")
    return canvas
