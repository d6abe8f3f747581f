"""The last hour of a job, kept in memory: what its page shows.

history.py     a listener: figures, what held the job, and warnings, as JSON
wait_curve.py  how many more left records would match if left waited longer, and how many fewer if shorter (pure)
"""
