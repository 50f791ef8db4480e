"""Tables as spreadsheet programs save them are read, whatever their encoding and signs."""

import zipfile
from pathlib import Path
from typing import Any

import pytest

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
NS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


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


def xlsx(path: Path, sheets: dict[str, str], shared: str = "") -> Path:
    names = [*sheets]
    with zipfile.ZipFile(path, "w") as archive:
        tabs = "".join(f'<sheet name="{one}" r:id="r{i}"/>' for i, one in enumerate(names))
        book = f'<workbook xmlns="{NS}" xmlns:r="{R}"><sheets>{tabs}</sheets></workbook>'
        archive.writestr("xl/workbook.xml", book)
        links = "".join(
            f'<Relationship Id="r{i}" Target="worksheets/s{i}.xml"/>' for i in range(len(names))
        )
        archive.writestr("xl/_rels/workbook.xml.rels", f"<Relationships>{links}</Relationships>")
        if shared:
            archive.writestr("xl/sharedStrings.xml", f'<sst xmlns="{NS}">{shared}</sst>')
        for i, name in enumerate(names):
            archive.writestr(
                f"xl/worksheets/s{i}.xml",
                f'<worksheet xmlns="{NS}"><sheetData>{sheets[name]}</sheetData></worksheet>',
            )
    return path


def test_xlsx_is_read_cell_by_cell(tmp_path: Path) -> None:
    shared = "<si><t>tekst</t></si><si><r><t>Ło</t></r><r><t>ś</t></r><rPh><t>x</t></rPh></si>"
    rows = (
        '<row><c r="A1" t="s"><v>0</v></c><c r="C1" t="inlineStr"><is><t>ocena</t></is></c></row>'
        "<row/>"
        '<row><c r="A3" t="s"><v>1</v></c><c r="B3" t="b"><v>1</v></c>'
        '<c r="C3"><v>2.0</v></c></row>'
    )
    path = xlsx(tmp_path / "a.xlsx", {"Pusty": "", "Dane": rows}, shared)
    found = read_spreadsheet(path)
    assert found.rows == [["tekst", "", "ocena"], ["Łoś", "true", "2"]]
    assert (found.sheet, found.sheets) == ("Dane", ("Pusty", "Dane"))
    assert rewritten(path.rename(tmp_path / "b.csv"))[1] == "tekst,,ocena\nŁoś,true,2\n"
    with pytest.raises(ValueError, match="no sheet 'x'; there are Pusty, Dane"):
        read_spreadsheet(tmp_path / "b.csv", "x")


def test_ods_is_read_with_its_repetitions(tmp_path: Path) -> None:
    names = ("office", "table", "text")
    spaces = " ".join(
        f'xmlns:{one}="urn:oasis:names:tc:opendocument:xmlns:{one}:1.0"' for one in names
    )
    cell = "<table:table-cell><text:p>%s</text:p></table:table-cell>"
    empty = '<table:table-cell table:number-columns-repeated="16000"/>'
    number = '<table:table-cell office:value-type="float" office:value="3.0"/>'
    rows = (
        f"<table:table-row>{cell % 'tekst'}{cell % 'n'}{empty}</table:table-row>"
        f'<table:table-row table:number-rows-repeated="2">{cell % "Łoś"}{number}</table:table-row>'
        f'<table:table-row table:number-rows-repeated="1000000">{empty}</table:table-row>'
    )
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as archive:
        archive.writestr(
            "content.xml", f'<a {spaces}><table:table table:name="A">{rows}</table:table></a>'
        )
    assert read_spreadsheet(tmp_path / "a.ods").rows == [["tekst", "n"], ["Łoś", "3"], ["Łoś", "3"]]


@pytest.mark.parametrize(
    ("cell", "row", "message"),
    [
        ("1000000000", "1", "more than 1,000 columns"),
        ("1", "1000000000", "repeated more than 1,048,576 times"),
        ("1", "6000", "5,000 cells"),
    ],
)
def test_repetitions_that_an_ods_declares_take_no_memory(
    cell: str, row: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("unmask.web.worker.calls.tables.spreadsheets.MAX_CELLS", 5_000)
    names = "urn:oasis:names:tc:opendocument:xmlns"
    spaces = " ".join(f'xmlns:{one}="{names}:{one}:1.0"' for one in ("table", "text", "office"))
    cells = f'<table:table-cell table:number-columns-repeated="{cell}"><text:p>a</text:p>'
    table = (
        f'<table:table table:name="A"><table:table-row table:number-rows-repeated="{row}">'
        f"{cells}</table:table-cell></table:table-row></table:table>"
    )
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as archive:
        archive.writestr("content.xml", f"<a {spaces}>{table}</a>")
    with pytest.raises(ValueError, match=message):
        read_spreadsheet(tmp_path / "a.ods")


def test_spreadsheets_that_cannot_be_read_say_why(tmp_path: Path) -> None:
    old = tmp_path / "a.xls"
    old.write_bytes(b"\xd0\xcf\x11\xe0 old")
    with pytest.raises(ValueError, match=r"^a\.xls: an old \.xls file, or one with a password"):
        rewritten(old)
    wide = xlsx(tmp_path / "b.xlsx", {"A": '<row><c r="ZZZ1"><v>1</v></c></row>'})
    with pytest.raises(ValueError, match=r"^b\.xlsx: cell ZZZ1: more than 1,000 columns"):
        rewritten(wide)
    damaged = xlsx(tmp_path / "c.xlsx", {"A": "<row>"})
    with pytest.raises(ValueError, match=r"^c\.xlsx: mismatched tag"):
        rewritten(damaged)
    lost = xlsx(tmp_path / "d.xlsx", {"A": '<row><c t="s"><v>7</v></c></row>'})
    with pytest.raises(ValueError, match=r"^d\.xlsx: "):
        rewritten(lost)


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
