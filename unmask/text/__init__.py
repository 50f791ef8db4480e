"""Text: documents from files, archives and the Hub; cleaning; sentences; mixtures of corpora."""
