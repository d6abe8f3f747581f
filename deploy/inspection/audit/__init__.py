"""`teacup audit`: joins a time range again by brute force and compares it with what a job wrote. Made for cron.

It shares with the join what a record is: how it is fetched, and where its time, key and kept fields are
(`joins.read.parse.locate`, `joins.read.deserialize`); and the batch plans of the checkpoint. Which records pair, which
one is chosen, what is late, where everything goes and what a row must say is decided here, from the documents alone.

plan_history.py  what the run decided, from the batch plans that the checkpoint still has (pure)
earlier.py       what the checkpoints that this one was moved or rewound from have read
digests.py       digests of texts that can be computed from the digests of their parts (pure)
findings.py      what was checked, how strictly, and what is wrong, for people and machines (pure)
verify/          the verdicts, in SQL
corrections.py   the rows that are different now, for a topic of their own
notes.py         what was not checked, or only in part
page.py          the findings as a page, minute by minute (pure)
records.py       records of both sides as columns of numbers, a batch at a time (pure)
run.py           the run: checkpoint, topics, tables, verdicts, keys of the records with faults
scan.py          which offsets are read, and reading them into Parquet files
shown_late.py    which right records may have been late, by the times of their neighbours (pure)
texts.py         what an envelope says (pure)
written.py       rows, copies and corrections as columns of numbers (pure)
"""
