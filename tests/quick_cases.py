"""Which cases of a test its mark `quick` names."""


def named(cases: list[str], words: tuple[str, ...]) -> set[str]:
    """Return the ids that a word is, or, where none is, those in which it stands between dashes."""
    whole = set(words) & set(cases)
    parts = [word for word in words if word not in whole]
    return whole | {c for c in cases if any(f"-{word}-" in f"-{c}-" for word in parts)}
