"""The command line as Typer sees it."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from deltastore import __version__
from deltastore.cli.arguments import EXIT_STATUS
from deltastore.cli.bench import bench
from deltastore.cli.demo import demo
from deltastore.cli.diff import diff
from deltastore.cli.doctor import doctor
from deltastore.cli.export import export
from deltastore.cli.follow import follow
from deltastore.cli.init import init
from deltastore.cli.inspect import inspect
from deltastore.cli.layout import layout
from deltastore.cli.log import log
from deltastore.cli.plan import plan
from deltastore.cli.publish import publish
from deltastore.cli.pull import pull
from deltastore.cli.show import show
from deltastore.cli.stats import stats
from deltastore.cli.validate import validate
from deltastore.cli.why import why

__all__ = ["app"]

app: Final = typer.Typer(
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_STATUS,
    # Plain help needs no rich, which would take longer to import than all the rest; and a traceback, if
    # there ever is one, is for a bug report.
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

for command in (
    *(init, publish, log, show, export, validate, follow),
    *(inspect, stats, diff, why),
    *(plan, pull, layout, doctor, demo),
):
    app.command(command.__name__, epilog=EXIT_STATUS)(command)
app.add_typer(bench, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"deltastore {__version__}")
        raise typer.Exit


@app.callback()
def deltastore(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A versioned store of sparse weight deltas: a trainer publishes, rollout engines follow."""
