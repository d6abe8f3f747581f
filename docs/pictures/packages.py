"""The packages in layers: each imports only those below it."""

from docs.pictures.canvas import GOOD, LEFT, RIGHT, Canvas


def packages() -> Canvas:
    """What puts parts together on top, what talks to Kafka at the bottom."""
    canvas = Canvas(
        "Packages: each imports only those below it",
        "deploy puts the parts together. joins is below it, dedup beside joins, datadelay below joins. teacup is "
        "the ground: base, kafka, spark, http, storage.",
        1000,
        360,
    )
    canvas.box(24, 56, 952, 60, "deploy", "commands, job files, the runner of jobs, checks, output", tone=GOOD)
    canvas.box(24, 136, 628, 60, "joins", "in-memory join, lookup join, feeder; tools for tests")
    canvas.box(24, 216, 628, 60, "datadelay", "collector, Data Delay API, offsets", tone=RIGHT)
    canvas.box(672, 136, 304, 140, "dedup", "recognises what is", "in the output already")
    canvas.box(24, 296, 952, 40, "teacup", "base, kafka, spark, http, storage", tone=LEFT)
    return canvas
