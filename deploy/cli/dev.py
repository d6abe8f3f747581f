"""`teacup dev`: what a developer's machine needs. Slow imports are left to the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deploy.errors import DeployError

dev_app = typer.Typer(help="For development: a Kafka broker on this machine.", no_args_is_help=True)


@dev_app.command("broker")
def broker_command(
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="where its log and its ports are stored (default: a temporary folder)"),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", help="the port that it listens on (default: a free one)")
    ] = None,
) -> None:
    """Start a single-node Kafka for development, print its address, stop it on Ctrl-C."""
    from deploy.dev.broker.command import run_broker

    try:
        run_broker(folder, port)
    except DeployError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(error.exit_code) from error
