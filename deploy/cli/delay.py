"""`teacup delay`: the collector and the Data Delay API. Slow imports are left to the command that needs them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from configfile.errors import SettingsInvalid
from datadelay.errors import DelayError
from deploy.cli.logs import log_each_line_once
from kafkaio.exitcode import OF_COLLECTOR, listed

delay_app = typer.Typer(help="How far has a consumer come in event time?", no_args_is_help=True)


@delay_app.command("collect", epilog="Exit codes:\n\n" + listed(OF_COLLECTOR))
def collect_command(
    config: Annotated[Path, typer.Argument(help="collector.yaml")],
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="one line per topic, not only for problems")] = False,
) -> None:
    """Look at every consumer and topic once, and submit their delays; made for cron."""
    from datadelay.collector.run import collect

    log_each_line_once(logging.INFO if verbose else logging.WARNING)
    raise typer.Exit(collect(config))


@delay_app.command("serve")
def serve_command(config: Annotated[Path, typer.Argument(help="delay.yaml")]) -> None:
    """Serve the Data Delay API and its page until SIGTERM."""
    from datadelay.api.serve import DelayServeConfig, serve
    from deploy.check.servicefiles import check_service
    from httpapi.server.serving import end_by_signals, log_to_standard_error

    log_to_standard_error()
    end_by_signals()
    try:
        check_service(config)
        serve(DelayServeConfig.load(config))
    except (DelayError, SettingsInvalid) as error:
        typer.echo(f"{error}", err=True)
        raise typer.Exit(error.exit_code) from error
