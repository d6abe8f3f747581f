"""Property-test a join of two topics without a broker; `pip install 'teacup-joins[testing]'`.

history     two topics as plain data: every offset, its event time, and when it becomes readable
log         a simulated log over a history, with a clock and the behaviour of the broker's time index
oracle      the join over the whole history, record by record, by brute force
strategies  Hypothesis strategies for descriptions of joins, histories, and ways to cut a run
"""
