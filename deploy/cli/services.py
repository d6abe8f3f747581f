"""`teacup delay`, `teacup storage`, `teacup dev`: the two servers, cron's collector, and a broker for development.

Slow imports are left to the commands.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from deploy.cli.commands import log_each_line_once, reported
from teacup.base.errors import OF_COLLECTOR, listed

C = TypeVar("C")

delay_app = typer.Typer(help="How far has a consumer come in event time?", no_args_is_help=True)
storage_app = typer.Typer(help="Bytes by key in namespaces, over REST.", no_args_is_help=True)
dev_app = typer.Typer(help="For development: a Kafka broker on this machine.", no_args_is_help=True)


@delay_app.command("collect", epilog="Exit codes:\n\n" + listed(OF_COLLECTOR))
def collect_command(
    config: Annotated[Path, typer.Argument(help="collector.yaml")],
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="print one line per topic, not only problems")
    ] = False,
) -> None:
    """Measure every consumer's delay once, and submit it; made for cron."""
    from datadelay.collector.run import collect

    log_each_line_once(logging.INFO if verbose else logging.WARNING)
    raise typer.Exit(collect(config))


@delay_app.command("serve")
def serve_command(config: Annotated[Path, typer.Argument(help="delay.yaml")]) -> None:
    """Serve the Data Delay API and its page until SIGTERM."""
    from datadelay.api.app import DelayServeConfig, serve

    _serve(config, DelayServeConfig.load, serve)


@storage_app.command("serve")
def storage_command(config: Annotated[Path, typer.Argument(help="storage.yaml")]) -> None:
    """Serve the storage API until SIGTERM; requests in progress are finished."""
    from teacup.storage.api.serve import StorageServeConfig, serve

    _serve(config, StorageServeConfig.load, serve)


def _serve(config: Path, load: Callable[[Path], C], serve: Callable[[C], None]) -> None:
    from deploy.jobfile.service_files import check_service
    from teacup.http.server.serving import end_by_signals, log_to_standard_error

    log_to_standard_error()
    end_by_signals()
    with reported():
        check_service(config)
        serve(load(config))


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
    from deploy.broker.broker import run_broker

    with reported():
        run_broker(folder, port)
