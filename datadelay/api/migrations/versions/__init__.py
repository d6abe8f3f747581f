"""One file per migration, numbered.

0001_published_and_history.py  what is published, and its history
"""
