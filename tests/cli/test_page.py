"""The page without a browser: what can be named, and what can be confirmed."""

import asyncio
import json
from unittest.mock import MagicMock

import pytest

from skdpot.cli.console import CommandError
from skdpot.cli.ui import Page
from skdpot.preprocessing import NumericColumn, TableSchema

TABLES = (".csv", ".gz")


def test_only_tables_of_the_folder_and_what_was_named_at_the_start(tmp_path):
    folder, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    (folder / "deep").mkdir(parents=True)
    elsewhere.mkdir()
    for name in ("here/a.csv", "here/deep/b.csv.gz", "here/.env", "elsewhere/a.csv"):
        (tmp_path / name).touch()
    (folder / "link.csv").symlink_to(elsewhere / "a.csv")
    (folder / "deep" / "up").symlink_to(elsewhere)
    given = elsewhere / "given.csv"
    page = Page(None, None, folder, str(given))
    for text in ("a.csv", "deep/b.csv.gz", "deep/../a.csv", str(folder / "a.csv"), str(given)):
        assert page.file(text, TABLES).suffix in TABLES
    assert page.file("new.db") == folder / "new.db"
    outside = [
        "../elsewhere/a.csv",
        "link.csv",
        "deep/up/a.csv",
        str(elsewhere / "a.csv"),
        "~nobody",
    ]
    for text in (*outside, "/etc/passwd", ".env", "a.csv\0", "", "/", f"{folder}x/a.csv"):
        with pytest.raises(CommandError, match="Only files in .*here can be named"):
            page.file(text, TABLES)


@pytest.fixture
def page(tmp_path):
    """A page without a browser, on which nothing is guessed but bounds that grow."""
    page, upper = Page(MagicMock(), None, tmp_path.resolve()), iter(range(10, 99))

    async def guessed(what, *words):
        schema = TableSchema([NumericColumn("age", lower=0, upper=next(upper))], guessed=True)
        shown = {"column": "age", "kind": "numeric", "read as": "", "why": "", "note": ""}
        content = json.loads(schema.to_json())
        return {"rows": 9, "columns": [shown], "orders": [], "schema": content}

    page.build()
    page.data, page._call, page._build_noise = tmp_path / "t.csv", guessed, MagicMock()
    return page


def offered(page, *choices):
    """Return what the button does that is there after some choices, None without one."""
    page.ui.button.reset_mock()
    for choice in choices:
        asyncio.run(page._treat("age", *choice))
    if not choices:
        asyncio.run(page._propose())
    buttons = [call for call in page.ui.button.call_args_list if call.args[0] == "Confirm"]
    return buttons[-1].kwargs["on_click"] if buttons else None


def test_the_schema_that_was_shown_is_confirmed_and_no_other(page, tmp_path):
    first = offered(page)
    again = offered(page)
    first()  # a click on what is no longer shown
    assert not list(tmp_path.iterdir())
    again()
    again()
    [place] = tmp_path.iterdir()
    schema = TableSchema.from_json(place / "schema.json")
    assert (schema["age"].upper, schema.guessed) == (11, False)


def test_an_empty_statement_cannot_be_confirmed(page, tmp_path):
    shown = offered(page)
    assert offered(page, ("state bounds", "")) is None
    shown()
    assert not list(tmp_path.iterdir())
    assert offered(page, ("state bounds", "0..9")) is not None

    async def refuses(what, *words):
        return None

    page._call = refuses
    assert offered(page, ("state bounds", "young..old")) is None
    shown()
    assert not list(tmp_path.iterdir())


def test_of_two_proposals_at_once_the_later_is_shown(page, tmp_path):
    guessed = page._call

    async def slowly(what, *words):
        await asyncio.sleep(0.0 if any("9..9" in word for word in words) else 0.1)
        return await guessed(what, *words)

    async def both():
        later = page._treat("age", "state bounds", "9..9")
        await asyncio.gather(page._propose(), later)

    page._call = slowly
    page.ui.button.reset_mock()
    asyncio.run(both())
    assert [call.args[0] for call in page.ui.button.call_args_list] == ["Confirm"]
