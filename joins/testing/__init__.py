"""Property-test a join of two topics without a broker; `pip install 'teacup-joins[testing]'`.

deadlock.py    the article's deadlock, for demonstration (pure)
history.py     two topics as plain data (pure)
log.py         a simulated log over a history, as of a clock's time (pure)
oracle.py      the join over a whole history, by brute force (pure)
play.py        from steps to the events of a partition, within a side's disorder and the producer delay (pure)
simulation.py  run a join over a simulated log and clock, with the same code as on Spark (pure)
strategies.py  Hypothesis strategies (pure)
"""
