"""The packages in layers: each imports only those below it."""

from docs.pictures.canvas import GOOD, LEFT, RIGHT, Canvas


def packages() -> Canvas:
    """What puts parts together on top, what talks to Kafka at the bottom."""
    canvas = Canvas(
        "Packages: each imports only those below it",
        "deploy puts the parts together. joins and dedup are below it. storage and datadelay are the two services. "
        "teacup.http, teacup.base.config, teacup.spark and teacup.kafka are what the others share.",
        1000,
        546,
    )
    canvas.box(24, 56, 952, 60, "deploy", "commands, job files, the runner of jobs, output, Spark's session", tone=GOOD)
    canvas.box(24, 136, 628, 60, "joins", "in-memory join, lookup join, feeder; tools for tests")
    canvas.box(24, 216, 304, 60, "storage", "storage API, its client, back ends", tone=RIGHT)
    canvas.box(348, 216, 304, 60, "datadelay", "collector, Data Delay API, offsets", tone=RIGHT)
    canvas.box(24, 296, 628, 60, "teacup.http", "what the two servers and their clients share", tone=LEFT)
    canvas.box(24, 376, 628, 60, "teacup.base.config", "configuration files: reading, validation", tone=LEFT)
    canvas.box(672, 136, 304, 140, "dedup", "recognises what is", "in the output already")
    canvas.box(672, 296, 304, 140, "teacup.spark", "Spark's edge: streams,", "checkpoints, errors", tone=LEFT)
    canvas.box(24, 456, 952, 60, "teacup.kafka", "the only package that talks to Kafka", tone=LEFT)
    return canvas
