"""The state of a job: what its runs report, the rule that follows from that, and who keeps it. Everyone reads it here.

moment.py     the state of a run at a moment: plain data (pure)
rule.py       the state of a job, why, and whether it is ready and well (pure)
own_lines.py  what a job has logged itself: its warnings, and the error that ended it
follower.py   a listener: follows a job over all its runs in this process
"""
