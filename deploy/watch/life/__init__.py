"""How a job is, in a word: what its runs tell, the rule that follows from it, and who keeps it. All read it here.

moment.py     how a run is at a moment: plain data (pure)
rule.py       the state of a job, why, and whether it is ready and well (pure)
own_lines.py  what a job has logged itself: its warnings, and the error that it ended for
follower.py   a listener: follows a job over all its runs in this process
"""
