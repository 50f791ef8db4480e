"""Tags and entities: one reading, three ways of writing; the reading is seqeval's too."""

import warnings
from itertools import pairwise, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from seqeval.metrics import f1_score, precision_score, recall_score
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import BILOU, IOB2, IOBES

from unmask.heads.tagging.crf import BOUNDARY
from unmask.tasks.metrics.tagging import entity_scores, extract_entities
from unmask.tasks.tag_schemes import (
    entities_to_tags,
    entity_types,
    forbidden_transitions,
    infer_scheme,
    is_allowed_transition,
    repair_tags,
    scheme_labels,
    unrecognized_entity_label,
)

SCHEMES = ("BIO", "BIOES", "IOB1", "BILOU", "BMES", "BMEWO")
TYPES = ("PER", "LOC", "a-b")
schemes = st.sampled_from(SCHEMES)
any_tag = st.sampled_from(["O", *(f"{p}-{t}" for p in "BIES" for t in TYPES)])
io_tag = st.sampled_from(["O", *(f"{p}-{t}" for p in "BI" for t in TYPES)])
anything = st.lists(any_tag, max_size=12) | st.lists(io_tag, max_size=12)


@given(anything)
def test_entities_equal_seqeval_even_for_ill_formed_tags(tags) -> None:
    theirs = [(start, end + 1, kind) for kind, start, end in get_entities(tags)]
    assert extract_entities(tags) == theirs


@given(st.lists(st.lists(st.tuples(any_tag, any_tag), max_size=8), min_size=1, max_size=4))
def test_scores_equal_seqeval(rows) -> None:
    truth, output = ([[pair[i] for pair in row] for row in rows] for i in (0, 1))
    ours = entity_scores(truth, output)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nothing found, or nothing to find
        assert ours.f1 == pytest.approx(f1_score(truth, output, zero_division=0))
        assert ours.precision == pytest.approx(precision_score(truth, output, zero_division=0))
        assert ours.recall == pytest.approx(recall_score(truth, output, zero_division=0))


@given(anything, schemes)
def test_repair_keeps_entities_and_is_idempotent(tags, scheme) -> None:
    repaired = repair_tags(tags, scheme)
    assert extract_entities(repaired) == extract_entities(tags)
    assert repair_tags(repaired, scheme) == repaired
    assert set(repaired) <= set(scheme_labels(entity_types(tags), scheme))


@given(anything, schemes)
def test_repaired_tags_are_well_formed(tags, scheme) -> None:
    repaired = [None, *repair_tags(tags, scheme), None]
    assert all(is_allowed_transition(a, b, scheme) for a, b in pairwise(repaired))


@given(anything, schemes)
def test_well_formed_tags_are_unchanged(tags, scheme) -> None:
    kept = set(scheme_labels(entity_types(tags), scheme))
    ends = [None, *tags, None]
    obeys = all(is_allowed_transition(a, b, scheme) for a, b in pairwise(ends))
    assert (obeys and set(tags) <= kept) == (repair_tags(tags, scheme) == tags)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_well_formed_is_exactly_what_can_be_written(scheme) -> None:
    labels = scheme_labels(("X", "Y"), scheme)
    for tags in product(labels, repeat=4):
        ends = [None, *tags, None]
        obeys = all(is_allowed_transition(a, b, scheme) for a, b in pairwise(ends))
        assert obeys == (repair_tags(tags, scheme) == list(tags)), tags


@pytest.mark.parametrize(
    ("scheme", "tags", "repaired"),
    [
        ("BIO", "O I-X I-X", "O B-X I-X"),
        ("BIO", "B-X I-Y I-Y", "B-X B-Y I-Y"),
        ("BIO", "I-X B-X", "B-X B-X"),
        ("BIO", "S-X B-Y E-Y", "B-X B-Y I-Y"),
        ("BIOES", "B-X O", "S-X O"),
        ("BIOES", "B-X I-X", "B-X E-X"),
        ("BIOES", "E-X E-X", "S-X S-X"),
        ("BIOES", "I-X I-X E-X O", "B-X I-X E-X O"),
        ("BIOES", "B-X B-X I-X", "S-X B-X E-X"),
        ("IOB1", "B-X I-X O B-Y B-Y", "I-X I-X O I-Y B-Y"),
    ],
)
def test_repair_equals_hand_computation(scheme, tags, repaired) -> None:
    assert repair_tags(tags.split(), scheme) == repaired.split()


parts = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from(TYPES)))


@given(parts, st.integers(0, 3), schemes)
def test_entities_written_as_tags_read_back(parts, rest, scheme) -> None:
    found, end = [], 0
    for gap, n, kind in parts:
        found.append((end + gap, end + gap + n, kind))
        end += gap + n
    tags = entities_to_tags(found, end + rest, scheme)
    assert extract_entities(tags) == found
    assert entities_to_tags(reversed(found), end + rest, scheme) == tags


@given(anything, schemes, schemes)
def test_translating_schemes_there_and_back_is_identity(tags, one, other) -> None:
    first = repair_tags(tags, one)
    assert repair_tags(repair_tags(first, other), one) == first


@pytest.mark.parametrize("found", [[(0, 2, "X"), (1, 3, "Y")], [(1, 1, "X")], [(2, 4, "X")]])
def test_unwritable_entities_are_an_error(found) -> None:
    with pytest.raises(ValueError, match="a sentence of 3 words and not overlap"):
        entities_to_tags(found, 3, "BIO")


@pytest.mark.parametrize("tag", ["NOUN", "B-", "X", "X-PER", ""])
def test_malformed_tag_is_an_error(tag) -> None:
    with pytest.raises(ValueError, match=f"a type, got '{tag}'"):
        repair_tags(["O", tag], "BIO")


@pytest.mark.parametrize(
    ("labels", "scheme"),
    [
        ("O B-X I-X", "BIO"),
        ("O B-X", "BIO"),
        ("O I-X", "IOB1"),
        ("O B-X I-X E-X S-X", "BIOES"),
        ("O S-X", "BIOES"),
        ("NOUN VERB", None),
        ("O", None),
        ("O B-X I-X L-X U-X", "BILOU"),
        ("O U-X", "BILOU"),
        ("O B-X L-X", "BILOU"),
        ("O B-X M-X E-X S-X", "BMES"),
        ("B M E S", "BMES"),
        ("O B-X M-X E-X W-X", "BMEWO"),
        ("O B I", "BIO"),
        ("O I", "IOB1"),
        ("B I", "BIO"),
        ("B E S", "BIOES"),
        ("O B I B-X", None),
        ("O B-X M-X L-X", None),
        ("S", None),
        ("B", None),
    ],
)
def test_scheme_is_inferred_from_labels(labels, scheme) -> None:
    assert infer_scheme(labels.split()) == scheme


def test_sentences_distinguish_bio_from_iob1() -> None:
    labels = ("O", "B-X", "I-X", "I-Y")
    assert infer_scheme(labels, [["I-X", "B-X", "O"], ["I-Y"]]) == "IOB1"
    assert infer_scheme(labels, [["I-X", "B-X", "O"], ["B-X"]]) == "BIO"  # one I too many
    assert infer_scheme(labels, [["B-X", "I-X"]]) == "BIO"


@given(anything)
def test_iob1_is_recognized_by_an_entity_starting_with_i(tags) -> None:
    assume(extract_entities(tags))
    written = repair_tags(tags, "IOB1")
    assert infer_scheme(written, [written]) == "IOB1"


@pytest.mark.parametrize(("name", "theirs"), [("BILOU", BILOU), ("BIOES", IOBES), ("BIO", IOB2)])
@given(rows=st.lists(st.tuples(anything, anything), min_size=1, max_size=4))
def test_scores_of_each_scheme_equal_seqeval(name, theirs, rows) -> None:
    """Its strict mode, which alone knows BILOU, reads only what obeys the scheme."""
    kept = [[repair_tags(tags[: min(map(len, row))], name) for tags in row] for row in rows]
    truth, output = ([row[i] for row in kept] for i in (0, 1))
    found = sum(tag != "O" for tags in truth for tag in tags)
    assume(found and any(tag != "O" for tags in output for tag in tags))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = f1_score(truth, output, mode="strict", scheme=theirs, zero_division=0)
    ours = entity_scores(truth, output).f1
    # Its micro average is of counts, as ours is.
    assert ours == pytest.approx(expected)


@given(st.lists(st.sampled_from(["O", *"BIES"]), max_size=12))
def test_untyped_tags_equal_seqeval(tags) -> None:
    theirs = [(start, end + 1) for _, start, end in get_entities(tags)]
    assert [(start, end) for start, end, _ in extract_entities(tags)] == theirs


@pytest.mark.parametrize(
    ("labels", "odd"),
    [
        ("O B-X I-X", None),
        ("O B I", None),
        ("NOUN VERB", None),
        ("O B-X I-X C-X", "C-X"),
        ("O B-X M-X L-X", "M-X"),
        ("O X-B X-I", "X-B"),
        ("O B_X I_X", "B_X"),
        ("O b-x i-x", "b-x"),
        ("B-X B-Y NOUN O", "NOUN"),
    ],
)
def test_labels_resembling_entities_are_reported(labels, odd) -> None:
    assert unrecognized_entity_label(labels.split()) == odd


def test_forbidden_transitions_of_bio() -> None:
    assert set(forbidden_transitions(("O", "B-X", "I-X", "I-Y"), "BIO")) == {
        (BOUNDARY, 2), (BOUNDARY, 3), (0, 2), (0, 3), (1, 3), (2, 3), (3, 2),
    }  # fmt: skip


def test_forbidden_transitions_of_bioes_include_both_ends() -> None:
    labels = ("O", "B-X", "E-X", "S-X")
    assert set(forbidden_transitions(labels, "BIOES")) == {
        (BOUNDARY, 2), (0, 2), (2, 2), (3, 2), (1, 0), (1, 1), (1, 3), (1, BOUNDARY),
    }  # fmt: skip
