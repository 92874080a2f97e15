"""The tutorials run as they are downloaded, and what their texts and titles say holds."""

import runpy
import tempfile
from pathlib import Path

import numpy as np
import pytest

TUTORIALS = Path(__file__).resolve().parents[2] / "examples" / "tutorials"


def table_is_useful_and_charged_once(ran):
    assert len(ran["budget"].history()) == 1
    assert ran["budget"].remaining() > 2.5
    assert (ran["synthetic"].discharged >= ran["synthetic"].admitted).all()
    scores = ran["display"].marginals
    assert len(scores) == 6
    auc = {row["epsilon"]: row["AUC on real rows"] for row in ran["results"]}
    assert auc[1.0] > auc[np.inf] - 0.03  # the title of the last picture
    for page in ("privacy.html", "quality.html"):
        assert (ran["folder"] / page).read_text("utf-8").startswith("<!DOCTYPE html>")


def pipeline_is_fair_at_little_cost(ran):
    assert ran["budget"].epsilon_spent() <= 1.2
    assert len(ran["budget"].history()) == 2
    by_level = dict(zip(ran["levels"], ran["ours"], strict=True))
    assert by_level[0.8][1] == pytest.approx(0.8, abs=0.1)
    assert by_level[0.0][0] > ran["unfair"][0] - 0.02


def networks_draw_digits(ran):
    scores = ran["scores"]
    assert min(scores.values()) > 0.6  # guessing has 0.1
    assert scores["coded, decoded"] > scores["flow"] - 0.05


def one_hospital_differs(ran):
    distances, errors = ran["distances"], ran["errors"]
    assert distances.loc["North", "South"] < 5 * errors.loc["North", "South"]
    assert distances.loc["North", "East"] > 10 * errors.loc["North", "East"]
    assert np.allclose(distances, ran["again"])


def engines_release_the_same(ran):
    statistics = [sketch.statistic_ for sketch in ran["sketches"].values()]
    assert len(statistics) == 3
    assert all(np.array_equal(statistics[0], other) for other in statistics[1:])
    assert ran["synthesizer"].n_samples_ == 200_000


CASES = {
    "plot_1_hospital_table": table_is_useful_and_charged_once,
    "plot_2_fair_pipeline": pipeline_is_fair_at_little_cost,
    "plot_3_own_networks": networks_draw_digits,
    "plot_4_three_hospitals": one_hospital_differs,
    "plot_5_cluster": engines_release_the_same,
}


def test_every_tutorial_has_a_case():
    assert sorted(path.stem for path in TUTORIALS.glob("*.py")) == sorted(CASES)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Dask and pandas
@pytest.mark.parametrize("name", CASES)
def test_a_tutorial_runs_and_keeps_what_it_says(name, tmp_path, monkeypatch):
    if name == "plot_5_cluster":
        pytest.importorskip("dask.dataframe")
        pytest.importorskip("pyarrow")
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    plt.switch_backend("Agg")
    with mpl.rc_context():
        CASES[name](runpy.run_path(str(TUTORIALS / f"{name}.py")))
    plt.close("all")
