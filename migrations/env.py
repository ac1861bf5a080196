"""Run the revisions on the connection that `service.storage.migrations` passes."""

from alembic import context

from service.storage.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, transactional_ddl=True)
context.run_migrations()
