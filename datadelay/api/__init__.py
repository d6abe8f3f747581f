"""The Data Delay API: stores what collectors submit, and publishes it by the rules of `datadelay.publish`.

serve.py       runs it: one process, one event loop
app.py         the routes
config.py      its configuration
store.py       what is published: committed when acknowledged, read from memory
database.py    the database that a URL names
sqlitefile.py  a SQLite file: locked for one server process, every commit on disk
postgresql.py  a PostgreSQL database: shared by several servers
migrating.py   migrates a database to the newest version
causes.py      what a failed database said, in one line
rows.py        what is published as a row of its table, and back
schema.py      the tables
migrations/    how the tables came to be
answers.py     a cache of encoded history pages
metrics.py     Prometheus metrics
page/          the page for people
"""
