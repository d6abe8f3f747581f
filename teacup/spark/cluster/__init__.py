"""What a session needs of a cluster.

master.py     whether Spark's master accepts a connection
executors.py  how many executors a session has, and since when it has none
"""
