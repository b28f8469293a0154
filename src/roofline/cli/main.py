"""The `roofline` command: joins the commands, each in its own file, and prints what they raise. No work happens here."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from roofline import __version__
from roofline.cli import models
from roofline.cli.bench import bench
from roofline.cli.chat import chat
from roofline.cli.display import print_error
from roofline.cli.doctor import doctor
from roofline.cli.run import run
from roofline.core.errors import RooflineError
from roofline.core.isa import probe_isa


class ErrorPrinter(TyperGroup):
    """Prints a RooflineError with its hint, without a traceback, and ends with status 2, as for a wrong option."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except RooflineError as error:
            print_error(error)
            raise typer.Exit(2) from error


app = typer.Typer(
    cls=ErrorPrinter,
    help="An LLM inference engine that knows its floor.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (run, chat, bench, doctor):
    app.command()(command)
app.add_typer(models.app, name="models")


def version_line() -> str:
    """Version and the kernel tiers in this build."""
    support = probe_isa()
    built = ", ".join(tier for tier, gaps in support.gaps.items() if "not built" not in gaps)
    return f"roofline {__version__}, kernels: {built}"


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(version_line())
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print version and kernels.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Entry point of the installed command."""
    app()


if __name__ == "__main__":
    main()
