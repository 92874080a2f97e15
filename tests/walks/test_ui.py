"""The web page: from a CSV file to a signed-off one by clicks, in a real browser."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection

import numpy as np
import pandas as pd
import pytest

from skdpot import PrivacyBudget, TableSchema
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


@contextmanager
def served(folder, *options, **environment):
    """Serve the page in a folder; yield its address."""
    command = [sys.executable, "-m", "skdpot.cli.main", "ui", *options]
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    environment = os.environ | path | environment
    environment.pop("PYTEST_CURRENT_TEST")  # NiceGUI would wait for its own tests
    with subprocess.Popen(
        command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
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


@pytest.fixture
def address(tmp_path):
    """Serve the page in a folder with a private table."""
    messy(N, np.random.default_rng(3)).to_csv(tmp_path / "patients.csv", index=False)
    with served(tmp_path, "--no-browser") as url:
        yield url


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
    asked = set(visitor.requests())
    assert address in asked
    # Nothing from elsewhere, and nothing beside the secret, so that it guards files and pictures.
    assert all(url.startswith((address, "data:", "blob:")) for url in asked), asked


@pytest.mark.slow
@pytest.mark.parametrize("visitor", [390], indirect=True)
def test_exactly_what_is_shown_is_confirmed(address, visitor, tmp_path):
    row = "//div[contains(@class, 'border-t')][.//*[normalize-space(text())='{}']]"
    confirm = "//button[normalize-space(.)='Confirm']"

    def choose(column, before, wanted):
        visitor.click(before, row.format(column) + "//label")
        visitor.click(wanted, "//*[@role='option']")

    def state(column, text):
        field = visitor.find(f"{row.format(column)}//input[@type='text']")
        field.send_keys(*("\b" * 40), text, "\n")

    visitor.driver.get(address)
    visitor.click("patients.csv")
    visitor.read(until="2. Confirm what is public")
    for column, wanted, told in (
        ("age", "leave out", "you say so"),
        ("icd", "list all values", " categories: A0"),
    ):
        choose(column, "as proposed", wanted)
        visitor.find(f"{row.format(column)}[contains(., '{told}')]")
        assert not visitor.find(confirm).is_enabled()
    for before, wanted, text, told in (
        ("as proposed", "state bounds", None, "Say how visits is to be read"),
        ("state bounds", "state bounds", "young..old", "What you chose cannot be done"),
        ("state bounds", "state bounds", "0..77000", "integers from 0 to 77000"),
    ):
        if text is None:
            choose("visits", before, wanted)
        else:
            state("visits", text)
        visitor.read(until=told)
        # Nothing falls back to what was read: there is no button until what was said is shown.
        assert bool(visitor.driver.find_elements("xpath", confirm)) == (text == "0..77000")
    shown = visitor.driver.find_element("tag name", "body").text
    # The file changes before it is confirmed: other bounds, other codes, another order of dates.
    table = pd.read_csv(tmp_path / "patients.csv", dtype=str)
    table.loc[0, ["admitted", "discharged", "icd", "city"]] = ["1999-01-01", "1998-01-01", "Z", "Q"]
    table.to_csv(tmp_path / "patients.csv", index=False)
    visitor.click("is not after “discharged”")
    visitor.click("may become public")
    visitor.click("Confirm")
    visitor.read(until="3. Set the noise")
    written = tmp_path / "patients-synthetic-1" / "schema.json"
    schema = TableSchema.from_json(written)
    assert (schema["visits"].lower, schema["visits"].upper) == (0, 77000)
    assert "age" in schema.excluded
    assert all(column.describe(in_full=True) in shown for column in schema)
    assert (schema.guessed, schema.rules) == (False, ())
    # With the rule after all: nothing is left of what was confirmed before.
    visitor.click("is not after “discharged”")
    visitor.click("Confirm", "//button")
    WebDriverWait(visitor.driver, PATIENCE).until(lambda _: '"rules"' in written.read_text())
    assert TableSchema.from_json(written).columns == schema.columns
    assert not list(tmp_path.glob("*.db"))


def status(url, **headers):
    """Return what a client is answered."""
    place, _, path = url.removeprefix("http://").partition("/")
    with closing(HTTPConnection(place, timeout=PATIENCE)) as connection:
        connection.request("GET", f"/{path}", headers=headers)
        return connection.getresponse().status


POLL = "_nicegui_ws/socket.io/?EIO=4&transport=polling"
SOCKET = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
SOCKET["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="


# What a browser was started with: the words, how others may read the file, and what is in it.
BROWSED = """
import os, sys, urllib.parse
path = urllib.parse.unquote(urllib.parse.urlparse(sys.argv[1]).path)
modes = [oct(os.stat(place).st_mode & 0o777) for place in (path, os.path.dirname(path))]
with open("opened.part", "w") as told:
    print(sys.argv[1:], *modes, open(path).read(), sep="\\n", file=told)
os.rename("opened.part", "opened")
"""


def test_nobody_finds_anything_without_the_secret_which_no_command_line_shows(tmp_path):
    (tmp_path / "browser.py").write_text(BROWSED)
    browser, told = f"{sys.executable} {tmp_path / 'browser.py'} %s", tmp_path / "opened"
    with served(tmp_path, BROWSER=browser, TMPDIR=str(tmp_path)) as address:
        origin, secret = address.rstrip("/").rsplit("/", 1)
        with urllib.request.urlopen(address) as page:
            linked = set(re.findall(r'(?:src|href)="(/[^"]+)"', page.read().decode()))
        assert linked  # scripts and styles
        for path in [*linked, f"/{secret}/{POLL}", f"/{secret}/"]:
            assert status(origin + path) == 200, path
            assert status(origin + path.removeprefix(f"/{secret}")) == 404, path
            assert status(origin + path[:4] + "x" + path[5:]) == 404
            assert status(origin + path, Host="attacker.example") == 400  # that has this address
        for path in ("/docs", "/openapi.json"):
            assert status(origin + path) == status(f"{origin}/{secret}{path}") == 404
        for base, answered in ((address, 101), (f"{origin}/", 403)):
            assert status(base + POLL.replace("polling", "websocket"), **SOCKET) == answered
        until = time.monotonic() + PATIENCE
        while not told.exists() and time.monotonic() < until:
            time.sleep(0.1)
        words, *modes, page = told.read_text().splitlines()
        assert secret not in words
        assert modes == ["0o600", "0o700"]
        assert f"url={address}" in page
    assert not list(tmp_path.glob("skdpot-*"))  # the file is removed at the end
