"""The migrations of the API's database, run when the server starts (`datadelay.api.schema.migrate`).

versions/  one file per migration, numbered
env.py     runs them on the connection that the caller opened, in the caller's transaction
"""
