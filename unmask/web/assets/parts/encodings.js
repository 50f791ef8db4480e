// Encodings of text other than UTF-8, in words, and the languages of the reader.

/** What a browser and the server both read. */
export const ENCODINGS = { "windows-1252": "Western European (Windows-1252, Latin-1)", "windows-1250": "Central European (Windows-1250)", "iso-8859-2": "Central European (Latin-2)",
  "windows-1251": "Cyrillic (Windows-1251)", "koi8-r": "Cyrillic (KOI8-R)", "windows-1253": "Greek (Windows-1253)", "iso-8859-7": "Greek (ISO-8859-7)", "windows-1254": "Turkish (Windows-1254)",
  "windows-1257": "Baltic (Windows-1257)", "windows-1255": "Hebrew (Windows-1255)", "windows-1256": "Arabic (Windows-1256)", "windows-1258": "Vietnamese (Windows-1258)", "windows-874": "Thai (Windows-874)",
  macintosh: "Western European (Macintosh)", ibm866: "Cyrillic (DOS)", shift_jis: "Japanese (Shift JIS)", "euc-jp": "Japanese (EUC-JP)", gb18030: "Chinese (GB 18030)", big5: "Chinese (Big5)", "euc-kr": "Korean (EUC-KR)",
  "utf-16le": "UTF-16, little-endian", "utf-16be": "UTF-16, big-endian" };

/** What the server reads besides. */
const OF_TABLES = { ibm852: "Central European (DOS)", ibm850: "Western European (DOS)", mac_latin2: "Central European (Macintosh)" };
const UNICODE = /^utf-(8|16)/;

/** For a select: [name, words] of all that a table may be in. */
export const tableEncodings = () => Object.entries({ ...ENCODINGS, ...OF_TABLES });
/** Whether the encoding was not guessed, but said by the file. */
export const isUnicode = (name) => UNICODE.test(name ?? "utf-8");
/** The languages of the reader, the most preferred first. */
export const languages = () => [...(navigator.languages ?? [])].slice(0, 8);
