"""The last hour of a job, kept in memory: what its page shows.

history.py     a listener: points, who held the join, warnings, as JSON
wait_curve.py  how many more left records would match if left waited longer, and how many fewer otherwise (pure)
"""
