"""?

look.py   what `teacup unjoined` looks at before it plans a slice
run.py    `teacup unjoined`, made for cron
stage.py  one slice of unjoined right records as a Spark batch job
"""
