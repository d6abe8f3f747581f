"""The batches of a job, carried out by a thread of its driver.

jobs.py       the Spark jobs of a batch: their tasks, an exchange between them, rows that go on through Spark
log.py        `BatchLog`: writes which batches are planned and committed, as Structured Streaming does
loop.py       `BatchLoop`: plans, carries out and commits one batch after the other
placement.py  which executor gets which work
"""
