"""The batches of a job, carried out by a thread of its driver.

jobs.py       the Spark jobs of a batch: their tasks, an exchange between them, rows that go on through Spark
log.py        `BatchLog`: the record of which batches are planned and committed
loop.py       `BatchLoop`: plans, carries out and commits one batch after the other
one_row.py    a batch of one row, which warms Spark up without any topic
placement.py  which executor gets which work
"""
