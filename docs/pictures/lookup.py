"""The lookup join and the parts beside it."""

from docs.pictures.canvas import GOOD, LEFT, RIGHT, Canvas


def lookup() -> Canvas:
    """Right is stored on top, how far it is stored is measured in the middle, left is looked up at the bottom."""
    canvas = Canvas(
        "The lookup join: right in external storage",
        "A feeder writes right records to the storage API and commits its positions. A collector run by cron reads "
        "these positions and the records there, and submits the smallest event time to the Data Delay API. The join "
        "holds left records until right is stored beyond their time, and looks them up in batches.",
        1000,
        500,
    )
    canvas.box(24, 80, 160, 80, "Right topic", "impressions", tone=RIGHT)
    canvas.box(270, 80, 170, 80, "Feeder", "a Spark job")
    canvas.box(790, 80, 186, 80, "Storage API", "right records by key,", "until they expire", tone=RIGHT)
    canvas.arrow((184, 120), (270, 120), tone=RIGHT)
    canvas.arrow((440, 120), (790, 120), tone=RIGHT)
    canvas.text(615, 112, "right records, in batches", tone=RIGHT, at="middle")

    canvas.box(270, 226, 170, 70, "Consumer group", "committed positions")
    canvas.arrow((355, 160), (355, 226))
    canvas.text(365, 198, "after each batch")
    canvas.box(500, 226, 110, 70, "Collector", "run by cron")
    canvas.box(660, 226, 110, 70, "Data Delay", "API")
    canvas.arrow((440, 261), (500, 261))
    canvas.arrow((610, 261), (660, 261))
    canvas.arrow((104, 160), (104, 340), (555, 340), (555, 296), tone=RIGHT, dashed=True)
    canvas.text(114, 331, "the records at these positions: their event times", tone=RIGHT)

    canvas.box(24, 390, 160, 80, "Left topic", "clicks", tone=LEFT)
    canvas.box(
        270, 390, 460, 80, "Lookup join", "holds left until time + after < consumed_until,", "then looks up its keys"
    )
    canvas.box(790, 390, 186, 80, "Output topic", "and side topics,", "with receipts", tone=GOOD)
    canvas.arrow((184, 430), (270, 430), tone=LEFT)
    canvas.arrow((730, 430), (790, 430), tone=GOOD)
    canvas.arrow((690, 296), (690, 390))
    canvas.text(682, 360, "consumed_until", at="end")
    canvas.arrow((883, 160), (883, 345), (715, 345), (715, 390), tone=RIGHT)
    canvas.text(875, 337, "candidates by key", tone=RIGHT, at="end")
    return canvas
