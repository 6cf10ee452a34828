"""doctor: what is installed here, what is missing, and how to get it."""

import typer

from whatwhere.cli.app import PREPARE, AsJson, app, print_json
from whatwhere.report.terminal import new_console, print_sections


@app.command(rich_help_panel=PREPARE)
def doctor(as_json: AsJson = False) -> None:
    """Print versions, kernels and threads, what is missing here, and the command that gets it.

    The exit status is 1 where something is missing that whatwhere does not work without.

    Example: whatwhere doctor

    For scripts, and reports of faults: whatwhere doctor --json
    """
    from whatwhere.installation import examine
    from whatwhere.report.installation import InstallationRecord, headline, sections

    found = examine()
    record = InstallationRecord(headline(found), found)
    if as_json:
        print_json(record)
    else:
        console = new_console()
        console.print(f"{record.headline}.", style="bold", soft_wrap=True)
        print_sections(sections(found), console)
    if any(each.necessary for each in found.missing):
        raise typer.Exit(1)
