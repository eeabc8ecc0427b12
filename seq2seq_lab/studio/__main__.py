"""`python -m seq2seq_lab.studio RUN…`: open a page that shows how runs produce their outputs."""

import argparse
import sys
import webbrowser
from collections.abc import Sequence

from seq2seq_lab.errors import Parser, report_errors


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve the page until the process is interrupted; see `parser`."""
    with report_errors():
        options = parser().parse_args(arguments)
        serve(options)


def serve(options: argparse.Namespace) -> None:
    """Open the runs, print the address and serve the page.

    Raises:
        UserError: a run cannot be opened, the port is in use, or the packages of the extra are missing.
    """
    from seq2seq_lab.studio.gate import Gate
    from seq2seq_lab.studio.questions import open_studio
    from seq2seq_lab.studio.server import listen, server

    with listen(options.port) as listening:
        port = listening.getsockname()[1]

        def address(token: str) -> str:
            return f"http://127.0.0.1:{port}/?token={token}"

        def announce(token: str) -> None:
            print(f"The address was used. For another browser: {address(token)}", flush=True)

        gate = Gate(port, options.allow_host, announce)
        studio = open_studio(options.folders, options.config_dir, options.index)
        serving = server(studio, gate)
        print(f"studio: {address(gate.token)}\nPress Ctrl-C to end.", flush=True)
        if not options.no_open and not webbrowser.open(address(gate.token)):
            print("No browser was found. Open the address yourself.", file=sys.stderr)
        serving.run(sockets=[listening])


def port(text: str) -> int:
    """Return the number of a port."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not a port from 0 to 65535")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    arguments = Parser(
        prog="python -m seq2seq_lab.studio",
        description="Open a page on this machine that shows how runs produce their outputs: search, probabilities and "
        "attention, and what changes if a word is forced or attention is moved.",
        epilog="Example: python -m seq2seq_lab.studio demo",
    )
    arguments.add_argument(
        "folders",
        nargs="+",
        metavar="RUN",
        help="a run folder (outputs/DATE/TIME), latest for the newest one, or demo for the run of the package",
    )
    arguments.add_argument(
        "--port", type=port, default=0, metavar="N", help="listen on this port (default: a free one)"
    )
    arguments.add_argument("--no-open", action="store_true", help="do not start the web browser")
    arguments.add_argument(
        "--index",
        action="store_true",
        help="compute the states of the training data at the start, not when the view of similar states is first used",
    )
    arguments.add_argument(
        "--config-dir",
        metavar="FOLDER",
        help="the folder of the custom components of the runs; its Python files are executed",
    )
    arguments.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name that the page may have in the browser besides localhost, behind a proxy; may be repeated",
    )
    return arguments


if __name__ == "__main__":
    main()
