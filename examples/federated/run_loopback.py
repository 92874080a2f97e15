"""A whole federation on one machine: one SuperLink, two SuperNodes, three files, one matrix.

``python examples/federated/run_loopback.py`` makes three files, plays the hospital that
coordinates and the two others, prints the distances between all three, and stops everything
that it started. The README beside this file says what is different in a real deployment.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pandas as pd

APP = Path(__file__).resolve().parent / "app"
PROTOCOLS = ("sliced", "triangle", "fedwad")
STARTUP = 60.0  # seconds until a server must answer
PATIENCE = 20.0  # seconds that a process gets to stop by itself


def make_files(directory: Path) -> list[Path]:
    """Write the rows of three hospitals: the second is like the first, the third is shifted."""
    rng = np.random.default_rng(0)
    paths = []
    for name, shift in (("north", 0.0), ("south", 0.0), ("east", 0.4)):
        rows = rng.normal(shift, 0.25, size=(2000, 4)).clip(-1, 1)
        paths.append(directory / f"{name}.csv")
        columns = ["age", "weight", "pressure", "glucose"]
        pd.DataFrame(rows, columns=columns).to_csv(paths[-1], index=False)
    return paths


def free_port() -> int:
    """Return a port of this machine that nobody listens to now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def stop(process: subprocess.Popen) -> None:
    """End a process and its children: first ask, then insist."""
    for name in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, name)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)


def remove(directory: Path) -> None:
    """Remove a directory, again and again while processes that are ending still write there.

    A process that was killed is not our child when one of those that we have started started it:
    it ends a moment later, and nobody tells us when.
    """
    deadline = time.monotonic() + PATIENCE
    while directory.exists() and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.05)


class Loopback:
    """Flower processes in a temporary directory, each with its children in a group of its own."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self.directory = directory
        self.stack = stack
        self.programs = Path(sys.executable).parent
        (directory / "temporary").mkdir()
        self.environment = os.environ | {
            "TMPDIR": str(directory / "temporary"),  # what they leave there goes with the rest
            "FLWR_HOME": str(directory / "flwr"),  # nothing is written to ~/.flwr
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{self.programs}{os.pathsep}{os.environ.get('PATH', '')}",
        }

    def start(self, log: str, program: str, *arguments: str) -> None:
        """Start a program that runs until the stack is left; its output goes to a log file."""
        file = self.stack.enter_context((self.directory / f"{log}.log").open("wb"))
        process = subprocess.Popen(
            [str(self.programs / program), *arguments],
            env=self.environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.stack.callback(stop, process)

    def start_executor(self, log: str, port: int) -> None:
        """Start what runs the app's code for the SuperLink or SuperNode at `port`.

        Flower would start it too, but outside of our process groups.
        """
        self.start(
            *(f"{log}-executor", "flower-superexec", "--insecure"),
            *("--runtime-api-address", f"127.0.0.1:{port}", "--parent-pid", str(os.getpid())),
        )

    def start_superlink(self) -> int:
        """Start the SuperLink, tell the command line of Flower where it is, return its port."""
        port = free_port()
        self.start(
            *("superlink", "flower-superlink", "--insecure", "--isolation", "process"),
            *("--disable-runtime-dependency-installation", "--host", "127.0.0.1"),
            *("--port", str(port)),
        )
        await_health(port, self.directory / "superlink.log")
        self.start_executor("superlink", port)
        connections = self.directory / "flwr" / "config.toml"
        connections.parent.mkdir(exist_ok=True)
        connections.write_text(
            '[superlink]\ndefault = "loopback"\n[superlink.loopback]\n'
            f'address = "127.0.0.1:{port}"\ninsecure = true\n',
            encoding="utf-8",
        )
        return port

    def start_supernode(self, superlink_port: int, settings: dict[str, object]) -> None:
        """Start the SuperNode of a party with the settings that this party has chosen."""
        port = free_port()
        name = str(settings["name"])
        file = self.directory / f"{name}.toml"
        lines = (f"{key} = {json.dumps(value)}" for key, value in settings.items())
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        self.start(
            *(name, "flower-supernode", "--insecure", "--isolation", "process"),
            *("--superlink", f"127.0.0.1:{superlink_port}", "--node-config", str(file)),
            *("--host", "127.0.0.1", "--port", str(port)),
        )
        self.start_executor(name, port)

    def run(self, settings: dict[str, object], timeout: float) -> None:
        """Run the app and show its log."""
        pairs = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
        subprocess.run(
            [
                *(str(self.programs / "flwr"), "run", str(APP), "loopback", "--stream"),
                *("--run-config", pairs),
            ],
            env=self.environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            timeout=timeout,
            check=True,
        )


def await_health(port: int, log: Path) -> None:
    """Wait until the SuperLink answers."""
    deadline = time.monotonic() + STARTUP
    while time.monotonic() < deadline:
        with suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1)
            return
        time.sleep(0.1)
    raise TimeoutError(f"The SuperLink does not answer:\n{log.read_text(encoding='utf-8')}")


def party_settings(path: Path, directory: Path, arguments: argparse.Namespace) -> dict:
    """Return what one party has decided for itself; in earnest each writes its own file.

    A party with a finite budget would refuse the protocols that are not private, whatever it
    allows: so for these it has none.
    """
    private = arguments.protocol == "sliced"
    return {
        "name": path.stem,
        "data": str(path),
        "allows": arguments.protocol,
        "epsilon": arguments.epsilon,
        "delta": 1e-5,
        "budget-epsilon": arguments.epsilon,
        "ledger": str(directory / f"{path.stem}.ledger") if private else "",
        "low": arguments.low,
        "high": arguments.high,
    }


def play(arguments: argparse.Namespace, directory: Path) -> Path:
    """Start everything, run the app, stop everything, and return where the results are."""
    paths = [path.resolve() for path in arguments.files] or make_files(directory)
    output = (arguments.output or directory / "results").resolve()
    # The first party also runs the SuperLink: it takes part without a SuperNode.
    coordinator, *others = (party_settings(path, directory, arguments) for path in paths)
    run_settings: dict[str, object] = {
        **{f"own-{key}": value for key, value in coordinator.items()},
        "protocol": arguments.protocol,
        "n-nodes": len(others),
        "low": arguments.low,
        "high": arguments.high,
        "output": str(output),
    }
    with ExitStack() as stack:
        loopback = Loopback(directory, stack)
        port = loopback.start_superlink()
        for settings in others:
            loopback.start_supernode(port, settings)
        loopback.run(run_settings, arguments.timeout)
    if not (output / "distances.csv").exists():
        sys.exit("The run failed: its log, above those of the processes, says why.")
    return output


def show(output: Path) -> None:
    """Print the matrix, with standard errors where there are any."""
    distances = pd.read_csv(output / "distances.csv", index_col=0)
    print("\ndistances\n" + distances.round(4).to_string())
    errors = output / "standard_errors.csv"
    if errors.exists():
        print("\nstandard errors\n" + pd.read_csv(errors, index_col=0).round(4).to_string())


def main() -> None:
    """Read the command line and play."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "files", type=Path, nargs="*", help="CSV files of numbers, one a party; made if none"
    )
    parser.add_argument("--protocol", choices=PROTOCOLS, default="sliced")
    parser.add_argument("--epsilon", type=float, default=1.0, help="of each party's sketch")
    parser.add_argument("--low", type=float, default=-1.0, help="public bound of all features")
    parser.add_argument("--high", type=float, default=1.0, help="public bound of all features")
    parser.add_argument("--output", type=Path, help="directory for the results, if they shall stay")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds for the whole run")
    arguments = parser.parse_args()
    if len(arguments.files) in (1, 2):
        parser.error("Pass three files or more: the coordinator's, and one for each SuperNode.")
    for name in (signal.SIGTERM, signal.SIGHUP):  # stop the others too when we are stopped
        signal.signal(name, lambda number, frame: sys.exit(128 + number))
    directory = Path(tempfile.mkdtemp(prefix="skdpot-federated-"))
    try:
        show(play(arguments, directory))
    except BaseException:
        for log in sorted(directory.glob("*.log")):
            print(f"\n== {log.name}\n{log.read_text(encoding='utf-8')[-2000:]}", file=sys.stderr)
        raise
    finally:
        remove(directory)


if __name__ == "__main__":
    main()
