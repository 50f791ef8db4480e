"""Tables as spreadsheet programs save them are read, whatever their encoding and signs."""

import zipfile
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
import xlsxwriter

from unmask.web.worker.calls.tables.encodings import decode, guess_encoding
from unmask.web.worker.calls.tables.spreadsheets import read_spreadsheet
from unmask.web.worker.table import load_call

POLISH = "Było już późno, gdy żółw ściągnął łańcuch."
SAMPLES = {
    "pl": (POLISH, ["windows-1250", "iso-8859-2", "ibm852", "mac_latin2"]),
    "cs": ("Příliš žluťoučký kůň úpěl ďábelské ódy.", ["windows-1250"]),
    "de": ("Schöne Grüße aus Österreich, süße Straße.", ["windows-1252"]),
    "fr": ("Où êtes-vous allé à Noël, garçon? Ça va.", ["windows-1252", "macintosh"]),
    "ru": ("Съешь ещё этих мягких булок", ["windows-1251", "koi8-r", "ibm866"]),
    "el": ("Καλημέρα κόσμε, τι κάνεις", ["windows-1253"]),
}


def rewritten(path: Path, **arguments: Any) -> tuple[dict[str, Any], str]:
    found = load_call("rewrite_table")({"file": str(path), **arguments})
    return found, (path.parent / found["name"]).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("language", "encoding"), [(one, name) for one, (_, some) in SAMPLES.items() for name in some]
)
def test_encodings_are_guessed_by_the_words_that_they_make(language: str, encoding: str) -> None:
    text = SAMPLES[language][0]
    for languages in ([], [language], ["en-US", language]):
        guessed = guess_encoding(text.encode(encoding), languages)
        assert decode(text.encode(encoding), guessed) == text


def test_the_language_of_the_reader_decides_between_equal_ones() -> None:
    data = "Árvíztűrő tükörfúrógép".encode("windows-1250")
    assert guess_encoding(data) == "windows-1252"
    assert guess_encoding(data, ["hu-HU", "en"]) == "windows-1250"
    assert guess_encoding(POLISH.encode("utf-16-le")) == "utf-16-le"
    assert guess_encoding(POLISH.encode()[:3]) == "utf-8"  # a character is cut
    call = load_call("guess_encoding")
    with pytest.raises(FileNotFoundError):
        call({"file": "/nowhere/at/all"})


@pytest.mark.parametrize("sign", [";", "\t", "|", ","])
@pytest.mark.parametrize("encoding", ["windows-1250", "utf-8-sig", "utf-16"])
def test_tables_of_excel_are_read(sign: str, encoding: str, tmp_path: Path) -> None:
    rows = [
        sign.join(row) for row in [("tekst", "kategoria"), (f'"{POLISH}{sign}"', "a"), ("", "")]
    ]
    (tmp_path / "a.csv").write_bytes("\r\n".join(rows).encode(encoding))
    found, text = rewritten(tmp_path / "a.csv", languages=["pl"])
    shown = f'"{POLISH}{sign}"'  # the comma within is quoted
    assert text == f"tekst,kategoria\n{shown},a\n"
    assert found["separator"] == sign
    again, _ = rewritten(tmp_path / "a.csv", languages=["pl"])
    assert again["name"] == found["name"]


def test_a_first_line_may_name_the_sign_and_an_encoding_may_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("sep=;\r\ntekst;a,b,c\r\nŁoś był;1\r\n".encode("windows-1250"))
    assert rewritten(path)[1] == 'tekst,"a,b,c"\nŁoś był,1\n'
    found, text = rewritten(path, encoding="windows-1252")
    assert "£oœ" in text
    assert found["name"] == "a-utf8-2.csv"  # the first may be in use
    with pytest.raises(ValueError, match=r"^a\.csv: not utf-8 at byte "):
        rewritten(path, encoding="utf-8")
    with pytest.raises(ValueError, match=r"^a\.csv: there is no encoding 'hex'"):
        rewritten(path, encoding="hex")


@pytest.mark.parametrize("sign", [";", "\t", "|", ","])
def test_long_texts_are_read_as_the_command_line_reads_them(sign: str, tmp_path: Path) -> None:
    text = "word " * 28_000
    (tmp_path / "a.csv").write_text(f'text{sign}label\r"{text}\0"{sign}x\rshort{sign}y\r')
    assert rewritten(tmp_path / "a.csv")[1] == f"text,label\n{text}\0,x\nshort,y\n"


Sheets = dict[str, list[list[Any]]]


def xlsx(path: Path, sheets: Sheets, hidden: str = "") -> Path:
    """Write sheets as a spreadsheet program does; "=..." is a formula."""
    with xlsxwriter.Workbook(str(path), {"default_date_format": "dd.mm.yy"}) as book:
        for name, rows in sheets.items():
            sheet = book.add_worksheet(name)
            for i, row in enumerate(rows):
                sheet.write_row(i, 0, row)
        if hidden:
            book.get_worksheet_by_name(hidden).hide()
    return path


EXPORT = [
    ["Customer news", None, None, None],
    [None, None, None, None],
    ["text", None, "label", "day"],
    *([f"row {i}", None, "ab"[i % 2], date(2026, 1, 1 + i)] for i in range(9)),
]
"""A title above the header, and a column that is empty."""
COVER = [["Report"], ["by me"], ["2026"]]
TABLE = "text,label,day\n" + "".join(f"row {i},{'ab'[i % 2]},2026-01-0{i + 1}\n" for i in range(9))


def test_the_table_is_found_below_its_title_and_behind_a_cover(tmp_path: Path) -> None:
    sheets = {"Cover": COVER, "Hidden": EXPORT[2:], "Data": EXPORT, "Lists": [["a", "b"], ["c", 1]]}
    path = xlsx(tmp_path / "a.xlsx", sheets, hidden="Hidden")
    found, text = rewritten(path)
    assert (found["sheet"], found["header"], text) == ("Data", 3, TABLE)
    assert found["sheets"] == (*sheets,)
    assert rewritten(path, sheet="Hidden")[1] == TABLE
    assert rewritten(path, header=4)[1].startswith("row 0,a,2026-01-01\nrow 1,b")
    assert rewritten(path.rename(tmp_path / "b.csv"))[0]["sheet"] == "Data"
    with pytest.raises(ValueError, match=r"^b\.csv: no sheet 'x'; there are Cover, Hidden, Data"):
        rewritten(tmp_path / "b.csv", sheet="x")
    for row in (0, 13):
        with pytest.raises(ValueError, match=rf"^b\.csv: row {row} is not one of its 12"):
            rewritten(tmp_path / "b.csv", header=row)


@pytest.mark.parametrize("above", [[], ["Title,,", ""], ["", "Title,,", ",of,", ""]])
def test_the_header_of_a_csv_is_found(above: list[str], tmp_path: Path) -> None:
    rows = [*above, "text,label,day", *(line for line in TABLE.splitlines()[1:])]
    (tmp_path / "a.csv").write_text("\n".join(rows).replace(",", ";"))
    assert rewritten(tmp_path / "a.csv")[1] == TABLE


@pytest.mark.parametrize("header", [["text", "label"], ["", "label"], ["text", "text"]])
def test_no_row_is_lost_below_an_odd_header(header: list[str], tmp_path: Path) -> None:
    rows = [header, *([f"row {i}", "" if i % 3 else "a"] for i in range(12))]
    path = xlsx(tmp_path / "a.xlsx", {"A": rows})
    text = rewritten(path)[1].splitlines()
    assert text[0] == ",".join([header[0] or "column1", header[1]])
    assert len(text) == 13


CELLS: dict[str, tuple[Any, str]] = {
    "a number": (3.0, "3"),
    "a share": (0.1 + 0.2, "0.3"),
    "a number of an order": (1234567890123, "1234567890123"),
    "a truth value": (True, "true"),
    "a date": (date(2026, 11, 28), "2026-11-28"),
    "a date with its time": (datetime(2026, 11, 28, 12, 30), "2026-11-28 12:30:00"),
    "a formula": ("=1+1", "0"),  # as the library that writes it has it computed
    "an error": ("=NA()", ""),
    "an escape": ("one_x000D_\ntwo \0", "one_x000D_\ntwo \0"),
    "a long text": ("word " * 6_000, "word " * 6_000),
}


@pytest.mark.parametrize("what", CELLS)
def test_cells_are_what_a_person_sees_in_them(what: str, tmp_path: Path) -> None:
    value, text = CELLS[what]
    path = tmp_path / "a.xlsx"
    with xlsxwriter.Workbook(str(path), {"default_date_format": "dd.mm.yy"}) as book:
        sheet = book.add_worksheet("A")
        sheet.write_row(0, 0, ["text", "label"])
        if what == "an error":
            sheet.write_formula(1, 0, value, None, "#N/A")
        else:
            sheet.write(1, 0, value)
        sheet.write_comment(1, 0, "look at this")
        sheet.merge_range(1, 1, 3, 1, "merged")
        sheet.write(3, 0, "x")
    assert read_spreadsheet(path).rows == [
        ["text", "label"], [text, "merged"], ["", "merged"], ["x", "merged"]
    ]  # fmt: skip


def ods(path: Path, rows: str) -> Path:
    kinds = ("office", "table", "text")
    spaces = " ".join(f'xmlns:{x}="urn:oasis:names:tc:opendocument:xmlns:{x}:1.0"' for x in kinds)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr(
            "content.xml",
            f"<office:document-content {spaces}><office:body><office:spreadsheet>"
            f'<table:table table:name="A">{rows}</table:table>'
            "</office:spreadsheet></office:body></office:document-content>",
        )
    return path


def test_ods_is_read_with_its_repetitions_and_without_comments(tmp_path: Path) -> None:
    cell = '<table:table-cell office:value-type="string"><text:p>%s</text:p></table:table-cell>'
    note = "<office:annotation><text:p>look</text:p></office:annotation>"
    empty = '<table:table-cell table:number-columns-repeated="16000"/>'
    valued = '<table:table-cell office:value-type="%s" office:%s="%s"><text:p>?</text:p>'
    values = [("float", "value", "3.0"), ("boolean", "boolean-value", "true"),
              ("date", "date-value", "2026-11-28"), ("percentage", "value", "0.5")]  # fmt: skip
    cells = "".join(f"{valued % one}</table:table-cell>" for one in values)
    text = (cell % "Łoś").replace("<text:p>", f"{note}<text:p>")
    rows = (
        f"<table:table-row>{cell % 'tekst'}{cell % 'n'}{empty}</table:table-row>"
        f'<table:table-row table:number-rows-repeated="2">{text}{cells}</table:table-row>'
        f'<table:table-row table:number-rows-repeated="1000000">{empty}</table:table-row>'
    )
    row = ["Łoś", "3", "true", "2026-11-28", "0.5"]
    assert read_spreadsheet(ods(tmp_path / "a.ods", rows)).rows == [["tekst", "n"], row, row]


def far(path: Path) -> Path:
    return _with_cell(path, 1_048_575, 16_383)


def wide(path: Path) -> Path:
    return _with_cell(path, 1, 1_500)


def repeated(path: Path) -> Path:
    cell = '<table:table-cell table:number-columns-repeated="16000" office:value-type="string">'
    row = f"{cell}<text:p>a</text:p></table:table-cell></table:table-row>"
    return ods(path, f'<table:table-row table:number-rows-repeated="1000000">{row}')


def _with_cell(path: Path, row: int, column: int) -> Path:
    with xlsxwriter.Workbook(str(path)) as book:
        sheet = book.add_worksheet("A")
        sheet.write(0, 0, "a")
        sheet.write(row, column, 1)
    return path


UNREAD: dict[str, tuple[Any, str]] = {
    "a.xls": (b"\xd0\xcf\x11\xe0 old", "damaged, too large, or no spreadsheet"),
    "a.numbers": (b"PK\5\6" + bytes(18), "damaged, too large, or no spreadsheet"),
    "a.xlsx": (wide, "more than 1,000 columns"),
    "far.xlsx": (far, "damaged, too large, or no spreadsheet"),
    "a.ods": (repeated, "damaged, too large, or no spreadsheet"),
    "empty.xlsx": (lambda path: xlsx(path, {"A": [["a"]], "B": []}), "no sheet has a row below"),
}


@pytest.mark.parametrize("name", UNREAD)
def test_spreadsheets_that_cannot_be_read_say_why(name: str, tmp_path: Path) -> None:
    made, message = UNREAD[name]
    path = tmp_path / name
    made(path) if callable(made) else path.write_bytes(made)
    with pytest.raises(ValueError, match=rf"^{name}: {message}"):
        rewritten(path)


def test_rows_without_a_label_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    full = "".join(f"Sentence {i},{'ab'[i % 2]}\n" for i in range(9))
    path.write_text(f"tekst,kategoria\n,a\nTwo, \n{full}")
    preview = load_call("preview_table")({"file": str(path)})
    assert preview["n_incomplete"] == 2
    call = load_call("leave_out_rows")
    found = call({"file": str(path), "needed": ["tekst", "kategoria"]})
    assert (found["name"], found["left_out"]) == ("a-complete.csv", 2)
    text = (tmp_path / "a-complete.csv").read_text()
    assert text == f"tekst,kategoria\n{full}"
    with pytest.raises(ValueError, match="no column 'x'"):
        call({"file": str(path), "needed": ["x"]})


def test_columns_called_words_may_hold_texts_and_dates_are_no_labels(tmp_path: Path) -> None:
    lines = [f"Ein Satz mit der Nummer {i},2024-01-0{i % 9 + 1},{'ab'[i % 2]}" for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["words,data,etykieta", *lines]))
    found = load_call("preview_table")({"file": str(tmp_path / "a.csv")})
    assert (found["task"], found["text"], found["label"]) == ("classify", ["words"], "etykieta")
    assert found["problem"] is None
