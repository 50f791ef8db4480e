"""Which cases of a test its marks `quick` and `sample` keep."""


def named(cases: list[str], words: tuple[str, ...]) -> set[str]:
    """Return the ids that a word is, or, where none is, those in which it stands between dashes."""
    whole = set(words) & set(cases)
    parts = [word for word in words if word not in whole]
    return whole | {c for c in cases if any(f"-{word}-" in f"-{c}-" for word in parts)}


def spread(cases: list[str], n: int) -> set[str]:
    """Return n cases at equal distances, the first among them."""
    n = min(n, len(cases))
    return {cases[i * len(cases) // n] for i in range(n)}
