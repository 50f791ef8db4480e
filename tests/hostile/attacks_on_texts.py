"""Attacks by texts, tables, spreadsheets, pictures, vectors and chat templates."""

import io
import os
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import bombs
from attack import Attack, written

GIGABYTES = 2**30 // bombs.BLOCK
BOMBS: dict[str, Callable[[], bytes]] = {
    "gz": lambda: bombs.gzipped(4 * GIGABYTES),
    "xz": lambda: bombs.xz(4 * GIGABYTES),
    "zst": lambda: bombs.zst(4 * GIGABYTES),
}
"""Four gigabytes of zeros, which are refused after the first."""


def packed_lines(name: str) -> Callable[[Path], object]:
    """Return what writes gigabytes of short lines."""
    make = {"gz": bombs.gzipped, "xz": bombs.xz, "zst": bombs.zst}[name]
    return lambda path: path.write_bytes(make(4 * GIGABYTES, b"a\n"))


OOXML = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELATIONS = (
    f'<Relationships><Relationship Id="r1" Type="{OOXML}/worksheet" Target="worksheets/a.xml"/>'
    "</Relationships>"
)


def spreadsheet(
    *, rows: str = "", shared: str = "", start: str = "", relations: str = RELATIONS
) -> bytes:
    """Return an .xlsx file of one sheet."""
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    files = {
        "xl/workbook.xml": f'<workbook xmlns="{main}" xmlns:r="{OOXML}"><sheets>'
        '<sheet name="a" sheetId="1" r:id="r1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": relations,
        "xl/worksheets/a.xml": f'{start}<worksheet xmlns="{main}"><sheetData>{rows}</sheetData>'
        "</worksheet>",
        "xl/sharedStrings.xml": f'{start}<sst xmlns="{main}">{shared}</sst>',
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return file.getvalue()


def ods(content: str) -> bytes:
    """Return an .ods file; <d> is its document."""
    spaces = "".join(
        f' xmlns:{x}="urn:oasis:names:tc:opendocument:xmlns:{x}:1.0"'
        for x in ("table", "text", "office")
    )
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        body = "<office:body><office:spreadsheet>"
        content = content.replace("<d>", f"<office:document-content{spaces}>{body}")
        end = "</office:spreadsheet></office:body></office:document-content>"
        archive.writestr("content.xml", content.replace("</d>", end))
    return file.getvalue()


LAUGHS = (
    "<!DOCTYPE s ["
    + '<!ENTITY a "haha">'
    + "".join(
        f'<!ENTITY {y} "{f"&{x};" * 10}">' for x, y in zip("abcdefghi", "bcdefghij", strict=True)
    )
    + "]>"
)
"""Entities that double each other (CVE-2003-1564)."""
OUTSIDE = '<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]>'
CELL = '<row><c t="inlineStr"><is><t>{}</t></is></c></row>'


def _xlsx_bomb(member: str, before: bytes, fill: bytes) -> Callable[[Path], object]:
    def make(path: Path) -> object:
        with zipfile.ZipFile(io.BytesIO(spreadsheet(rows=CELL.format("a") * 2))) as archive:
            members = {name: archive.read(name) for name in archive.namelist() if name != member}
        return path.write_bytes(bombs.zip_of(members, member, GIGABYTES, before, fill))

    return make


def _ods_bomb(path: Path) -> object:
    return path.write_bytes(bombs.zip_of({}, "content.xml", GIGABYTES, b"<d>", b"<a></a>\n"))


TABLE = '<d><table:table table:name="a">{}</table:table></d>'
ODS_CELL = '<table:table-cell office:value-type="string" table:number-columns-repeated="{}"><text:p>{}</text:p></table:table-cell>'  # noqa: E501
ROW = '<table:table-row table:number-rows-repeated="{}">{}</table:table-row>'
SHEETS: dict[str, tuple[str, bytes]] = {
    "entities that laugh, .xlsx": ("xlsx", spreadsheet(start=LAUGHS, rows=CELL.format("&j;") * 2)),
    "entities that laugh, .ods": ("ods", ods(LAUGHS + "<d>&j;</d>")),
    "an entity of a file": ("xlsx", spreadsheet(start=OUTSIDE, rows=CELL.format("&x;") * 2)),
    "a column of billions": ("xlsx", spreadsheet(rows='<row><c r="ZZZZZZZ1"><v>1</v></c></row>')),
    "a column of no letters": (
        "xlsx",
        spreadsheet(rows='<row><c r="!!!!!!!1"><v>1</v></c></row>' * 2),
    ),
    "a shared text beyond the end": (
        "xlsx",
        spreadsheet(rows='<row><c t="s"><v>9</v></c></row>' * 2),
    ),
    "a shared text of no number": (
        "xlsx",
        spreadsheet(rows='<row><c t="s"><v>x</v></c></row>' * 2),
    ),
    "a shared text of many digits": (
        "xlsx",
        spreadsheet(rows=f'<row><c t="s"><v>{"9" * 5000}</v></c></row>' * 2),
    ),
    "a sheet that leads out": (
        "xlsx",
        spreadsheet(
            relations=RELATIONS.replace("worksheets/a.xml", "../../../worksheets/../../etc/passwd")
        ),
    ),
    "rows that are repeated billions of times": (
        "ods",
        ods(TABLE.format(ROW.format(2**40, ODS_CELL.format(1, "a")))),
    ),
    "cells that are repeated billions of times": (
        "ods",
        ods(TABLE.format(ROW.format(2, ODS_CELL.format(2**40, "a")))),
    ),
    "rows and cells that are repeated": (
        "ods",
        ods(TABLE.format(ROW.format(2**20, ODS_CELL.format(1000, "a" * 10_000)))),
    ),
    "a negative number of rows": (
        "ods",
        ods(TABLE.format(ROW.format(-5, ODS_CELL.format(-3, "a")))),
    ),
    "deep elements": ("ods", ods("<d>" + "<a>" * 50_000 + "</a>" * 50_000 + "</d>")),
}


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">2I5B", width, height, 8, 2, 0, 0, 0)
    numbers = b"\x78\xda" + bombs.deflated(4)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", numbers) + chunk(b"IEND", b"")
    )


def _npy(shape: str, kind: str = "<f4") -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head) + 1) + head + b"\n" + bytes(64)


def _npz_bomb(path: Path) -> object:
    head = _npy("(1000000, 32, 32, 3)", "|u1")[:-64]
    return path.write_bytes(bombs.zip_of({}, "images.npy", 2 * GIGABYTES, head))


def _parquet(path: Path) -> object:
    """Write a text of a megabyte a hundred thousand times, which takes a few kilobytes."""
    import pyarrow
    from pyarrow import parquet

    words = pyarrow.array(["a" * 2**20])
    indices = pyarrow.array([0] * 100_000, pyarrow.int32())
    table = pyarrow.table({"text": pyarrow.DictionaryArray.from_arrays(indices, words)})
    return parquet.write_table(table, path)


def _wide_parquet(path: Path) -> object:
    import pyarrow
    from pyarrow import parquet

    return parquet.write_table(pyarrow.table({f"c{i}": [i] for i in range(20_000)}), path)


def _parquet_image(path: Path) -> object:
    import pyarrow
    from pyarrow import parquet

    rows = [{"bytes": None, "path": "/etc/passwd"}, {"bytes": b"\0", "path": "../../x.png"}]
    return parquet.write_table(pyarrow.table({"image": rows}), path)


NAMES = ("../../x.png", "/etc/passwd", "..\\x.png", "a/../../x.png", "\0", "C:/x.png", "~/x.png")


def _members(name: str) -> Callable[[Path], object]:
    def make(path: Path) -> object:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name.replace("\0", "\1"), b"x")
        data = path.read_bytes().replace(b"\1", b"\0")
        return path.write_bytes(data)

    return make


def _table_of(name: str) -> Callable[[Path], object]:
    return lambda path: path.write_text("file_name,text\n" + f'"{name}",a\n', newline="")


def _linked_pictures(path: Path) -> object:
    (path.parent / "x.png").symlink_to("/dev/zero")
    return path.write_text("file_name,text\nx.png,a\n")


def _loop(path: Path) -> object:
    return path.symlink_to(path.name)


def _sparse_file(path: Path) -> object:
    """Make a file of a terabyte that takes no room on the disk."""
    path.touch()
    return os.truncate(path, 2**40)


RANDOM = random.Random(0)
NOISE = RANDOM.randbytes(5000)
TEMPLATES: dict[str, str] = {
    "loops in loops": "{% for i in range(99999) %}{% for j in range(99999) %}"
    "{% endfor %}{% endfor %}",
    "loops in loops in loops": "{% for i in range(900) %}{% for j in range(900) %}"
    "{% for k in range(900) %}{% set x = k %}{% endfor %}{% endfor %}{% endfor %}",
    "a text that doubles": "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set n.x = n.x + n.x %}{% endfor %}",
    "a text that doubles by joining": "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set n.x = n.x ~ n.x %}{% endfor %}",
    "a list that doubles": "{% set n = namespace(x=[0]) %}{% for i in range(60) %}"
    "{% set n.x = n.x + n.x %}{% endfor %}",
    "a list in a list, twice": "{% set n = namespace(x=1) %}{% for i in range(60) %}"
    "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
    "a table in a table, twice": "{% set n = namespace(x=1) %}{% for i in range(60) %}"
    "{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}{{ n.x|tojson }}",
    "a block that doubles": "{% set n = namespace(x='a') %}{% for i in range(60) %}"
    "{% set x %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = x %}{% endfor %}",
    "a macro that doubles": "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}"
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = f(n.x) %}{% endfor %}",
    "bytes of a number": "{{ (1).to_bytes(1000000000, 'big') }}",
    "bytes of a text": "{{ 'a'.encode().ljust(1000000000) }}",
    "a value for a width": "{{ '{:{}}'.format(1, 1000000000) }}",
    "a star for a width": "{{ '%*d' % (1000000000, 1) }}",
    "a number that squares": "{% set n = namespace(x=9) %}{% for i in range(60) %}"
    "{% set n.x = n.x * n.x %}{% endfor %}",
    "a wide format": "{{ '%1000000000d' % 1 }}",
    "a wide format of braces": "{{ '{:1000000000}'.format(1) }}",
    "a wide filter": "{{ 'a'|center(1000000000) }}",
    "a wide method": "{{ 'a'.ljust(1000000000) }}",
    "many zeros": "{{ 'a'.zfill(1000000000) }}",
    "a wide indentation": "{{ 'a\nb'|indent(1000000000) }}",
    "a text that is replaced": "{% set n = namespace(x='a') %}{% for i in range(30) %}"
    "{% set n.x = n.x.replace('a', 'aaaaaaaaaa') %}{% endfor %}",
    "a text that is joined": "{% set n = namespace(x='a') %}{% for i in range(30) %}"
    "{% set n.x = (n.x ~ 'b').join(['', '', '', '', '', '', '']) %}{% endfor %}",
    "many words": "{{ lipsum(n=1000000) }}",
    "a macro that calls twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
    "{% endmacro %}{{ f(60) }}",
    "a loop that recurs": "{% for i in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "a large slice": "{{ 'a'|batch(1000000000, 'b')|list }}",
    "a pattern": "{{ ('a' * 5000)|urlize }}",
    "attributes": "{{ ''|attr('__class__')|attr('__mro__') }}",
    "attributes by a filter": "{{ [messages]|map(attribute='__class__.__mro__')|list }}",
    "attributes by a format": "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "a deep expression": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "many blocks": "{% if 1 %}" * 5000 + "{% endif %}" * 5000,
    "a deep sum": "{{ 1" + " + 1" * 10_000 + " }}",
    "a huge number": "{{ " + "9" * 100_000 + " }}",
    "a debugger": "{% debug %}",
    "a file": "{% extends '/etc/passwd' %}",
}

ATTACKS: dict[str, Attack] = {
    **{
        f"a bomb as .{kind}": Attack(
            f"documents of .txt.{kind}", lambda path, m=make: path.write_bytes(m()), seconds=8
        )
        for kind, make in BOMBS.items()
    },
    **{
        f"a bomb of lines as .{kind}": Attack(
            f"documents of .txt.{kind}", packed_lines(kind), seconds=8
        )
        for kind in BOMBS
    },
    "a bomb of rows": Attack("rows of .tsv.gz", packed_lines("gz"), seconds=8),
    "a bomb of CSV": Attack(
        "rows of .csv.xz", lambda path: path.write_bytes(bombs.xz(GIGABYTES, b'a,"b"\n')), seconds=8
    ),
    "a bomb of JSON": Attack(
        "rows of .jsonl.zst",
        lambda path: path.write_bytes(bombs.zst(GIGABYTES, b'{"a": 1}\n')),
        seconds=8,
    ),
    "a bomb as vectors": Attack(
        "packed vectors", lambda path: path.write_bytes(bombs.gzipped(4 * GIGABYTES)), seconds=8
    ),
    "a bomb of vectors": Attack(
        "packed vectors",
        lambda path: path.write_bytes(bombs.gzipped(GIGABYTES, b"a 1 2 3\n")),
        seconds=8,
    ),
    "a bomb as digits": Attack(
        "pictures of -images-idx3-ubyte.gz",
        lambda path: path.write_bytes(
            struct.pack(">4I", 2051, 2**31, 28, 28) and bombs.gzipped(4 * GIGABYTES)
        ),
    ),
    **{
        f"a sheet of {n}": Attack(
            f"spreadsheet of .{kind}", written(data), harmless=True, seconds=10, megabytes=1100
        )
        for n, (kind, data) in SHEETS.items()
    },
    "a bomb of rows, .xlsx": Attack(
        "spreadsheet of .xlsx", _xlsx_bomb("xl/worksheets/a.xml", b"<s>", b"<row></row>\n")
    ),
    "a bomb of a cell, .xlsx": Attack(
        "spreadsheet of .xlsx",
        _xlsx_bomb(
            "xl/worksheets/a.xml",
            CELL.format("a").removesuffix("</t></is></c></row>").encode(),
            b"a",
        ),
    ),
    "a bomb of shared texts": Attack(
        "spreadsheet of .xlsx", _xlsx_bomb("xl/sharedStrings.xml", b"<s>", b"<si><t>a</t></si>\n")
    ),
    "a bomb of a workbook": Attack(
        "spreadsheet of .xlsx", _xlsx_bomb("xl/workbook.xml", b"<s>", b"<a></a>\n")
    ),
    "a bomb of elements, .ods": Attack("spreadsheet of .ods", _ods_bomb),
    "a picture of a billion pixels": Attack("pictures of .png", written(_png(2**15, 2**15))),
    "a picture of 2^62 pixels": Attack("pictures of .png", written(_png(2**31 - 1, 2**31 - 1))),
    "an archive of pictures that is a bomb": Attack(
        "pictures of .zip", lambda path: path.write_bytes(bombs.zip_of({}, "a.png", 3 * GIGABYTES))
    ),
    **{f"a member called {n!r}": Attack("pictures of .zip", _members(n)) for n in NAMES},
    **{f"a picture called {n!r}": Attack("pictures of .csv", _table_of(n)) for n in NAMES},
    "a picture of a device": Attack("pictures of .csv", _linked_pictures),
    "pictures of Parquet that are elsewhere": Attack("pictures of .parquet", _parquet_image),
    "an array of 2^60 numbers": Attack("array", written(_npy("(1152921504606846976,)"))),
    "an array of a negative size": Attack("array", written(_npy("(-4,)"))),
    "an array of an overflowing size": Attack("array", written(_npy("(4294967296, 4294967296)"))),
    "an array of an expression": Attack("array", written(_npy("(__import__('os').getpid(),)"))),
    "an array of deep parentheses": Attack("array", written(_npy("(" * 5000 + ")" * 5000))),
    "an array of records of objects": Attack("array", written(_npy("(1,)", "|O8"))),
    "arrays that are a bomb": Attack("pictures of .npz", _npz_bomb),
    "a text of Parquet that is a bomb": Attack("documents of .parquet", _parquet, seconds=8),
    "rows of Parquet that are a bomb": Attack("rows of .parquet", _parquet, seconds=8),
    "columns of Parquet": Attack("documents of .parquet", _wide_parquet),
    "a loop of links as text": Attack("documents of .txt", _loop),
    "a loop of links as vectors": Attack("vectors", _loop),
    "a loop of links as JSON": Attack("JSON", _loop),
    "a terabyte of nothing as JSON": Attack("JSON", _sparse_file),
    "a terabyte of nothing as vectors": Attack("fastText", _sparse_file),
    "a terabyte of nothing as text": Attack("documents of .txt", _sparse_file, seconds=8),
    "a terabyte of nothing as SentencePiece": Attack("SentencePiece", _sparse_file),
    "a terabyte of nothing as a vocabulary": Attack("vocabulary", _sparse_file),
    "a terabyte of nothing as merges": Attack("merges", _sparse_file),
    "a terabyte of nothing as a log": Attack("log", _sparse_file),
    "a terabyte of nothing as a chat template": Attack("chat template", _sparse_file),
    "vectors of a huge header": Attack("vectors", written("999999999999 999999999\na 1 2\n")),
    "vectors of a huge width": Attack("vectors", written(f"1 {2**62}\na 1\n"), harmless=True),
    "vectors of many digits": Attack(
        "vectors", written("1 2\na " + "9" * 10**6 + " 1\n"), harmless=True
    ),
    "vectors of infinity": Attack("vectors", written("1 2\na inf nan\n"), harmless=True),
    "fastText of negative sizes": Attack(
        "fastText", written(struct.pack("<14i", 793712314, 12, *[-1] * 12) + bytes(200))
    ),
    "fastText of huge sizes": Attack(
        "fastText", written(struct.pack("<14i", 793712314, 12, *[2**31 - 1] * 12) + bytes(200))
    ),
    "word2vec of huge sizes": Attack("fastText", written(b"2147483647 2147483647\n\xff " + NOISE)),
    "a row of a million fields": Attack("rows of .csv", written("a,b\n" + "," * 10**6 + "\n")),
    "a header of a million fields": Attack(
        "rows of .tsv", written("\t".join(map(str, range(10**6))) + "\n"), harmless=True
    ),
    "a quote that never ends": Attack("rows of .csv", written('a,b\n"' + "\n" * 10**6)),
    "a million quotes": Attack("rows of .csv", written('a\n"' + '""' * 10**6)),
    "JSON lines that are deep": Attack("rows of .jsonl", written("[" * 10**6)),
    "JSON lines of a huge number": Attack(
        "rows of .jsonl", written('{"text": 1e999999999}'), harmless=True
    ),
    "JSON lines of a long number": Attack(
        "rows of .jsonl", written('{"text": ' + "9" * 10**6 + "}")
    ),
    "JSON lines of a key twice": Attack(
        "rows of .jsonl", written('{"a": "x", "a": "y"}\n'), harmless=True
    ),
    **{
        f"a template of {n}": Attack("chat template", written(x), harmless=True)
        for n, x in TEMPLATES.items()
    },
}
