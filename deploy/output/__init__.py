"""What is written, and where: rows to the output topic, copies to the side topics.

The way of a row, in the task that joined it:

    select.py      the user's expressions (`output.select`) become columns of the row
    stage.py       takes a ticket's rows; skips those that are in the output already; commits if its accounts add up
    routing.py     which topic gets what of the row: envelope, headers, side topics, dead letters (pure)
    deliveries.py  **writes it**: `Writing.write` hands records to Kafka, `commit` makes them durable
    kept.py        which rows stay as they are when a job is rewound (pure)
    ours.py        which rows and copies another job, or an earlier checkpoint, has written, by their headers (pure)
    accounts.py    what was read, joined, dropped and written must add up; a task's report of a bucket (pure)

Below `Writing` are transactions and receipts (`teacup.kafka.delivery.delivery`).
"""
