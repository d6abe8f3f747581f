"""`teacup status`: how jobs are doing that run elsewhere, from their checkpoints and brokers alone. Nothing is written.

inspect.py   inspects the job of a file: its lock, its record of runs, its batches, its topics
row.py    what is known of one job, and whether it is well
table.py  many jobs as a table, for people, and as JSON lines
"""
