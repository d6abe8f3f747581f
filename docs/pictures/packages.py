"""The packages in layers: each imports only those below it."""

from docs.pictures.canvas import CONTROL, FADED, GOOD, LEFT, RIGHT, Canvas

GROUND = (
    (152, 284, 396, "spark", "session, streaming readers"),
    (564, 284, 396, "storage", "items by key: API, client, back ends"),
    (152, 336, 396, "kafka", "reading, records, writing, delivery"),
    (564, 336, 396, "http", "what servers and clients share"),
    (152, 388, 808, "base", "errors, clocks, configuration"),
)
"""The folders of `teacup`: where each is, how wide, and what it holds."""


def packages() -> Canvas:
    """What puts parts together on top, what knows nothing of the others at the bottom."""
    canvas = Canvas(
        "Packages: each imports only those below it",
        "deploy puts the parts together, and imports all others. joins imports datadelay and teacup; dedup and "
        "datadelay import teacup alone. Within teacup spark is above kafka, storage above http, and all of them above "
        "base.",
        1000,
        464,
    )
    canvas.box(24, 56, 952, 56, "deploy", "commands, job files, the runner of jobs, checks, output", tone=GOOD)
    canvas.box(24, 128, 630, 56, "joins", "in-memory join, lookup join, feeder; tools for tests", tone=LEFT)
    canvas.box(24, 200, 630, 56, "datadelay", "collector, Data Delay API, offsets of a time", tone=RIGHT)
    canvas.box(670, 128, 306, 128, "dedup", "recognises what is", "in the output already", tone=RIGHT)

    canvas.band(24, 272, 952, 176, FADED)
    canvas.text(44, 357, "teacup", bold=True)
    canvas.text(44, 374, "the ground", tone=CONTROL)
    for x, y, width, name, what in GROUND:
        canvas.box(x, y, width, 44, name, what)
    return canvas
