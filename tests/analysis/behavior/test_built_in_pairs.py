"""Built-in pairs: balanced, so that neither length nor the frequency of words decides."""

from collections import Counter

from unmask.analysis.behavior.built_in_pairs import built_in_pairs

PAIRS = built_in_pairs()
PARADIGMS = {pair.paradigm for pair in PAIRS}
BY_PARADIGM = {name: [p for p in PAIRS if p.paradigm == name] for name in PARADIGMS}


def words(text: str) -> Counter[str]:
    return Counter(text.lower().strip(".").replace(",", "").split())


def test_pairs_are_distinct_and_both_sentences_differ() -> None:
    assert len({(p.good, p.bad) for p in PAIRS}) == len(PAIRS) == 144 + 80 + 180
    assert {p.phenomenon for p in PAIRS} == {"negation", "roles"}
    assert len(BY_PARADIGM) == 10
    assert all(p.good != p.bad for p in PAIRS)


def test_each_word_is_good_as_often_as_bad() -> None:
    for pairs in BY_PARADIGM.values():
        good = sum((words(p.good) for p in pairs), Counter())
        assert good == sum((words(p.bad) for p in pairs), Counter())


def test_a_negated_pair_is_the_plain_one_with_the_answer_exchanged() -> None:
    for plain, negated in zip(
        BY_PARADIGM["category"], BY_PARADIGM["negated_category"], strict=True
    ):
        assert plain.good.replace(" is ", " is not ") == negated.bad
        assert plain.bad.replace(" is ", " is not ") == negated.good


def test_roles_are_the_same_words_in_another_order() -> None:
    roles = [p for p in PAIRS if p.phenomenon == "roles"]
    assert all(words(p.good) == words(p.bad) for p in roles)
    examples = {p.paradigm: p.good for p in reversed(roles)}
    assert examples["animate_patient_active"] == "The doctor cured the patient."
    assert examples["animate_patient_passive"] == "The patient was cured by the doctor."
    assert examples["inanimate_patient_relative"] == "This is the apple that the boy ate."
