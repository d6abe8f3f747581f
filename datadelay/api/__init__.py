"""The Data Delay API: stores what collectors submit, and publishes it by the rules of `datadelay.publish`.

serve.py       runs it: one process, one event loop, one SQLite file
app.py         the routes
config.py      its configuration
store.py       what is published: on disk when acknowledged, read from memory
database.py    the SQLite file: locked for one server process, migrated, and every commit on disk
rows.py        what is published as a row of its table, and back
schema.py      the tables
migrations/    how the tables came to be
answers.py     a cache of encoded history pages
metrics.py     Prometheus metrics
page/          the page for people
"""
