"""`teacup storage`: arguments in, one call, text out. Slow imports are left to the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

storage_app = typer.Typer(help="Bytes by key in namespaces, over REST.", no_args_is_help=True)


@storage_app.command("serve")
def serve_command(config: Annotated[Path, typer.Argument(help="storage.yaml")]) -> None:
    """Serve the storage API until SIGTERM; requests in progress are finished."""
    from configfile.errors import SettingsInvalid
    from deploy.check.servicefiles import check_service
    from httpapi.server.serving import end_by_signals, log_to_standard_error
    from storage.api.serve import StorageServeConfig, serve
    from storage.errors import StorageError

    log_to_standard_error()
    end_by_signals()
    try:
        check_service(config)
        serve(StorageServeConfig.load(config))
    except (StorageError, SettingsInvalid) as error:
        typer.echo(f"{error}", err=True)
        raise typer.Exit(error.exit_code) from error
