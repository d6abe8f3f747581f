"""Runs migrations on the connection that the caller opened, in the caller's transaction."""

from alembic import context

from datadelay.api.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
