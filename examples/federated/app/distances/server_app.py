"""What runs at the coordinator: it asks all parties, and writes the matrix of distances."""

import json
from pathlib import Path

import numpy as np
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from distances.settings import make_party
from skdpot.distance.estimates import PairwiseResult
from skdpot.distance.flower import remote_parties
from skdpot.distance.messages import SketchRequest
from skdpot.distance.remote import RemoteParties
from skdpot.ot.measures import gaussian_reference

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Play the protocol that the run's configuration names."""
    settings = context.run_config
    own_settings = {
        key.removeprefix("own-"): value for key, value in settings.items() if key.startswith("own-")
    }
    own = [make_party(own_settings)] if own_settings["data"] else []
    parties = remote_parties(
        grid, n_nodes=int(settings["n-nodes"]), own=own, timeout=float(settings["timeout"])
    )
    print("Parties:", ", ".join(f"{p.name} ({p.n_samples} rows)" for p in parties.parties))
    result = play(parties, settings)
    print(result)
    write(result, settings, Path(str(settings["output"])))


def play(parties: RemoteParties, settings: dict) -> PairwiseResult:
    """Ask for what the protocol needs."""
    rng = np.random.default_rng(int(settings["seed"]))  # draws public things only
    if settings["protocol"] == "sliced":
        request = SketchRequest.draw(
            parties.parties[0].n_features,
            n_projections=int(settings["n-projections"]),
            n_bins=int(settings["n-bins"]),
            bounds=(float(settings["low"]), float(settings["high"])),
            rng=rng,
        )
        return parties.pairwise_sliced(request)
    n_support, n_features = int(settings["n-support"]), parties.parties[0].n_dimensions
    reference = gaussian_reference(n_support, n_features, rng=rng)
    if settings["protocol"] == "triangle":
        return parties.pairwise_triangle(t=float(settings["t"]), reference=reference)
    n_rounds = int(settings["n-rounds"])
    return parties.pairwise_fedwad(n_rounds=n_rounds, reference=reference, rng=rng)


def write(result: PairwiseResult, settings: dict, directory: Path) -> None:
    """Write tables of distances and standard errors, and all details as JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    pairs = []
    # Sketches are compared in the unit of the scaled features.
    unit = 1.0
    if result.protocol == "sliced":
        unit = (float(settings["high"]) - float(settings["low"])) / 2
    for (first, second), estimate in result.estimates.items():
        pair = {"first": first, "second": second, "distance": estimate.distance * unit}
        if result.protocol == "sliced":
            pair["standard_error"] = estimate.standard_error * unit
            pair["interval_95"] = [end * unit for end in estimate.interval()]
        pairs.append(pair)
    if result.protocol == "sliced":
        (result.standard_errors() * unit).to_csv(directory / "standard_errors.csv")
    facts = {
        "protocol": result.protocol,
        "pairs": pairs,
        "n_bytes": result.transcript.n_bytes,
        "messages": json.loads(result.transcript.to_frame().to_json(orient="records")),
    }
    (directory / "result.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    # Written last: who sees this file sees all of them.
    (result.to_frame() * unit).to_csv(directory / "distances.csv")
