"""Open sizes: whatever is computed from them holds for all sizes that they allow."""

from random import Random

import pytest

from minigraph.support.sizes import OpenDimensions, OpenSize, closed

QUESTIONS = [
    lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a < b, lambda a, b: a <= b, lambda a, b: a > b,
    lambda a, b: a >= b, lambda a, b: b in (a, 3), lambda a, b: max(a, b), lambda a, b: int(a) % 9,
]  # fmt: skip
ARITHMETIC = [
    lambda a, b: a * b, lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a // b, lambda a, b: a % b,
    lambda a, b: a * 2.5, lambda a, b: -a, lambda a, b: a / b, lambda a, b: sum([a, b, a]), lambda a, b: b * 0,
]  # fmt: skip


def computed(seed, sizes):
    """Answers of some questions about sizes, and what was computed from them."""
    random, known, answers = Random(seed), [*sizes, 1, 2, 3, -1, 8, 64], []
    for _ in range(random.randrange(1, 8)):
        a, b = random.choice(known), random.choice(known)
        try:
            if random.random() < 0.5:
                known.append(random.choice(ARITHMETIC)(a, b))
            else:
                answers.append(random.choice(QUESTIONS)(a, b))
        except ZeroDivisionError:
            answers.append("division by zero")
    return [*answers, *known]


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(8))
def test_allowed_sizes_have_the_same_answers(chunk):
    for seed in range(chunk * 250, chunk * 250 + 250):
        random = Random(-seed)
        values = [random.randrange(1, 70) for _ in range(random.randrange(1, 3))]
        dimensions = OpenDimensions(values)
        found = computed(seed, [dimensions.size(number) for number in range(len(values))])
        assert dimensions.allow(values)
        for others in [values, *([random.randrange(1, 70) for _ in values] for _ in range(20))]:
            if dimensions.allow(others):
                expected = computed(seed, others)
                assert [each.at(others) if type(each) is OpenSize else each for each in found] == expected


def test_a_size_has_no_hash():
    with pytest.raises(TypeError, match="unhashable"):
        hash(OpenDimensions([4]).size(0))


def test_a_number_that_is_taken_allows_no_other():
    dimensions = OpenDimensions([4])
    assert len(range(dimensions.size(0) * 2)) == 8
    assert dimensions.allow([4])
    assert not dimensions.allow([5])


def test_a_shape_is_closed_by_sizes():
    batch, length = map(OpenDimensions([4, 7]).size, range(2))
    assert closed((batch, 3, batch * length * 2, length), [5, 6]) == (5, 3, 60, 6)
