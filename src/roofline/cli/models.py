"""`roofline models`: the models with short names, which of them are here, and getting them."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from roofline.cli.display import progress_bars
from roofline.core.errors import ModelNotFoundError
from roofline.weights.catalog import CATALOG, DEFAULT_MODEL, CatalogModel
from roofline.weights.hub import cached_path, get_model, models_dir

app = typer.Typer(help="Models with short names: list them, get them, say where they are.", invoke_without_command=True)
Name = Annotated[str, typer.Argument(help=f"A short name, e.g. {DEFAULT_MODEL}.")]


@app.callback()
def list_models(context: typer.Context) -> None:
    """List the models with short names."""
    if context.invoked_subcommand is not None:
        return
    table = Table("name", "size", "licence", "here", "what it is", box=None, header_style="bold")
    for model in CATALOG.values():
        here = "yes" if cached_path(model) else "no"
        table.add_row(model.name, f"{model.size_bytes / 1e6:.0f} MB", model.licence, here, model.note)
    Console().print(table)
    typer.echo(f"\nkept in {models_dir()}; `roofline models get NAME` fetches one")


@app.command()
def get(names: Annotated[list[str], typer.Argument(help=f"Short names, e.g. {DEFAULT_MODEL}, or `all`.")]) -> None:
    """Fetch models, unless they are here, and print their paths."""
    models = list(CATALOG.values()) if names == ["all"] else [_known(name) for name in names]
    for model in models:
        with progress_bars() as progress:
            path = get_model(model, progress=progress)
        typer.echo(path)


@app.command()
def path(name: Name) -> None:
    """Print the path of a model that is here."""
    found = cached_path(_known(name))
    if found is None:
        raise ModelNotFoundError(f"{name} is not here", hint=f"roofline models get {name}")
    typer.echo(found)


def _known(name: str) -> CatalogModel:
    if name not in CATALOG:
        raise ModelNotFoundError(f"no short name {name!r}", hint=f"short names: {', '.join(CATALOG)}")
    return CATALOG[name]
