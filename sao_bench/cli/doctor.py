"""`doctor`: what works on this machine, and how to get what does not."""

from typing import Annotated

import typer

app = typer.Typer()


@app.command()
def doctor(
    build_image: Annotated[
        bool, typer.Option("--build-image", help="first build the Docker level's image (root, debootstrap)")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="print the table as JSON")] = False,
) -> None:
    """Say what works on this machine and how to get what does not; always exits 0 unless a build fails."""
    import json as encoder

    from sao_bench.sandbox import checkup

    if build_image:
        from sao_bench.sandbox import image

        print(f"image: {image.build()}")
    findings = checkup.findings()
    if json:
        rows = [{"name": f.name, "works": f.works, "found": f.found, "how": f.how} for f in findings]
        print(encoder.dumps(rows, indent=1, sort_keys=True))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="What works here", title_justify="left")
    for column in ("", "what", "found", "how to get it"):
        table.add_column(column, overflow="fold")
    for finding in findings:
        mark = "[green]yes[/]" if finding.works else "[yellow]no[/]"
        how = "" if finding.works else finding.how
        table.add_row(mark, *map(escape, (finding.name, finding.found, how)))
    Console().print(table)
    print(checkup.summary(findings))
