"""The web page: from a CSV file to a signed-off one by clicks, in a real browser."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest

from skdpot import PrivacyBudget
from skdpot.cli.main import main
from tests.walks.test_messy_csv import messy

webdriver = pytest.importorskip("selenium.webdriver")
WebDriverWait = pytest.importorskip("selenium.webdriver.support.ui").WebDriverWait
pytest.importorskip("nicegui")
BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
PATIENCE = 120  # seconds, of a busy machine
N = 400


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.0.7", "::"])
def test_other_computers_reach_the_page_only_if_somebody_says_so(host, capsys):
    assert main(["ui", "--host", host]) == 1
    assert "can be reached from other computers" in capsys.readouterr().err


def test_a_host_is_an_address(capsys):
    assert main(["ui", "--host", "example.org"]) == 2
    assert "write an IP address" in capsys.readouterr().err


@pytest.fixture
def address(tmp_path):
    """Serve the page in a folder with a private table."""
    messy(N, np.random.default_rng(3)).to_csv(tmp_path / "patients.csv", index=False)
    command = [sys.executable, "-m", "skdpot.cli.main", "ui", "--no-browser"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment.pop("PYTEST_CURRENT_TEST")  # NiceGUI would wait for its own tests
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as server:
        url = server.stderr.readline().strip()
        place = url.split("/")[2].split(":")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            with suppress(ConnectionRefusedError), socket.create_connection(place):
                break
            time.sleep(0.1)
        yield url
        server.terminate()


class Visitor:
    """Somebody with a mouse, who counts the clicks."""

    def __init__(self, folder, width):
        options = webdriver.ChromeOptions()
        options.binary_location = BROWSER
        for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
        self.driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
        self.downloads = folder / "downloads"
        behaviour = {"behavior": "allow", "downloadPath": str(self.downloads)}
        self.driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
        self.clicks = 0

    def find(self, path):
        """Return the first element that is shown, as soon as one is."""

        def shown(driver):
            return next((e for e in driver.find_elements("xpath", path) if e.is_displayed()), None)

        return WebDriverWait(self.driver, PATIENCE).until(shown)

    def click(self, text, path="//*[self::button or @role='radio' or @role='checkbox']"):
        found = self.find(f"{path}[contains(normalize-space(.), '{text}')]")
        centre = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"
        self.driver.execute_script(centre, found)
        found.click()
        self.clicks += 1

    def read(self, until):
        self.find(f"//*[contains(normalize-space(text()), '{until}')]")
        return self.driver.find_element("tag name", "body").text

    def fetched(self, name):
        path = self.downloads / name
        WebDriverWait(self.driver, PATIENCE).until(lambda _: path.exists())
        return path

    def requests(self):
        """Return the addresses that the page asked for."""
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                sent = message["params"]
                if sent["documentURL"].startswith("http"):  # not the browser's own pages
                    yield sent["request"]["url"]


@pytest.fixture(params=[1280])
def visitor(request, tmp_path):
    if not (BROWSER and DRIVER):
        pytest.skip("needs chromium and chromedriver")
    visitor = Visitor(tmp_path, request.param)
    yield visitor
    visitor.driver.quit()


@pytest.mark.slow
def test_from_a_private_table_to_one_that_is_signed_off(address, visitor, tmp_path):
    private = pd.read_csv(tmp_path / "patients.csv", dtype=str)
    visitor.driver.get(address)
    visitor.click("patients.csv")
    proposed = visitor.read(until="2. Confirm what is public")
    assert f"{N} rows" in proposed
    assert "Columns with such names identify people" in proposed
    assert "Never before 'admitted' in any row" in proposed
    assert "--" not in proposed  # options of commands are of no use here
    assert not visitor.find("//button[normalize-space(.)='Confirm']").is_enabled()
    visitor.click("may become public")
    visitor.click("Confirm")
    planned = visitor.read(until="3. Set the noise")
    assert "one value: nothing is spent on it" in planned
    ledger = tmp_path / "patients-ledger.db"
    assert not ledger.exists()  # the noise is shown, and nothing is spent
    for column in ("patient_id", "name", "remark"):  # which nobody has confirmed
        assert not any(text in proposed + planned for text in private[column].unique())
    visitor.click("Run")
    visitor.read(until="4. Look, and download")
    history = PrivacyBudget.from_ledger(ledger).history()
    assert history["epsilon"].round(6).tolist() == [1.0]
    for what in ("table", "report", "statement"):
        visitor.click(f"Download {what}")
    assert visitor.clicks <= 8
    table = pd.read_csv(visitor.fetched("synthetic.csv"), dtype=str)
    assert len(table) == N
    assert (table["admitted"] <= table["discharged"]).all()  # in ISO format
    assert "Quality of a synthetic table" in visitor.fetched("quality.html").read_text("utf-8")
    statement = visitor.fetched("privacy.html").read_text("utf-8")
    assert "Privacy report" in statement
    assert "is not far below 1/n" not in statement  # delta is small enough
    origin = address.rpartition("/")[0]
    asked = set(visitor.requests())
    assert address in asked
    assert all(url.startswith((origin, "data:", "blob:")) for url in asked), asked


@pytest.mark.slow
@pytest.mark.parametrize("visitor", [390], indirect=True)
def test_what_is_changed_is_shown_before_it_is_confirmed(address, visitor, tmp_path):
    visitor.driver.get(address)
    visitor.click("patients.csv")
    visitor.read(until="2. Confirm what is public")
    row = "//div[contains(@class, 'border-t')][.//*[normalize-space(text())='{}']]"
    for column, wanted, told in (
        ("age", "leave out", "you say so"),
        ("icd", "list all values", " categories: A0"),
    ):
        visitor.click("as proposed", row.format(column) + "//label")
        visitor.click(wanted, "//*[@role='option']")
        visitor.find(f"{row.format(column)}[contains(., '{told}')]")
        assert not visitor.find("//button[normalize-space(.)='Confirm']").is_enabled()
    assert not list(tmp_path.glob("*.db"))


def test_nobody_else_finds_the_page(address):
    origin = address.rpartition("/")[0]
    for url, host, status in (
        (origin, None, 404),
        (f"{origin}/docs", None, 404),
        (address, "attacker.example", 400),  # a site that gives itself this address
    ):
        request = urllib.request.Request(url, headers={} if host is None else {"Host": host})
        with pytest.raises(urllib.error.HTTPError, match=str(status)) as refused:
            urllib.request.urlopen(request)
        refused.value.close()
    with urllib.request.urlopen(address) as page:
        assert page.status == 200
