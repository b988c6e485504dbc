"""Selected rows: their order by number, their sums, and rows of a table.

Numbers in `order` are places in the list of rows; `numbers` has the row number of each place.
"""

DIGIT = 11
"""Bits of a row number that one pass of `sort_rows` looks at."""


def sort_rows(numbers, height, order, other, counts):
    """Write to `order` the places of `numbers` in ascending order, those of one number in their order.

    `other` is as long as `order`, and `counts` has an element for each value of a digit. Returns how many
    numbers are found that are not in [0, `height`); then nothing is sorted.
    """
    for i in range(numbers.size):
        if numbers[i] < 0 or numbers[i] >= height:
            return 1
        order[i] = i
    shift = 0
    while (height - 1) >> shift:
        counts[:] = 0
        for i in range(numbers.size):
            counts[(numbers[i] >> shift) & (counts.size - 1)] += 1
        start = 0
        for digit in range(counts.size):
            start, counts[digit] = start + counts[digit], start
        for i in range(numbers.size):
            digit = (numbers[order[i]] >> shift) & (counts.size - 1)
            other[counts[digit]] = order[i]
            counts[digit] += 1
        # An element at a time, as numba takes two seconds longer to compile an assignment of arrays.
        for i in range(order.size):
            order[i] = other[i]
        shift += DIGIT
    return 0


def merge_rows(numbers, value, order, merged_numbers, total):
    """Write each number once to `merged_numbers`, and the sum of its rows to `total`; return how many there are."""
    count = 0
    for i in range(order.size):
        at = order[i]
        if i and numbers[at] == merged_numbers[count - 1]:
            for j in range(value.shape[1]):
                total[count - 1, j] += value[at, j]
        else:
            merged_numbers[count] = numbers[at]
            for j in range(value.shape[1]):
                total[count, j] = value[at, j]
            count += 1
    return count


def add_rows(numbers, value, padding, total):
    """Add each row of `value` to the row of its number, unless that is `padding` and not -1.

    Returns how many numbers are found that are no row of `total`; then the rest is not added.
    """
    for i in range(numbers.size):
        number = numbers[i]
        if padding != -1 and number == padding:
            continue
        if number < 0 or number >= total.shape[0]:
            return 1
        for j in range(value.shape[1]):
            total[number, j] += value[i, j]
    return 0


def take_rows(table, numbers, padding, out):
    """Write the rows of `table` to `out`, zeros for `padding` unless that is -1.

    Returns how many numbers are found that are neither `padding` nor a row of the table; then the rest is not written.
    """
    for i in range(numbers.size):
        number = numbers[i]
        if padding != -1 and number == padding:
            for j in range(out.shape[1]):
                out[i, j] = 0
        elif 0 <= number < table.shape[0]:
            for j in range(out.shape[1]):
                out[i, j] = table[number, j]
        else:
            return 1
    return 0


def copy_numbers(numbers, height, out):
    """Copy `numbers` to `out` up to the first that is not in [0, `height`); return how many are found."""
    for i in range(numbers.size):
        if numbers[i] < 0 or numbers[i] >= height:
            return 1
        out[i] = numbers[i]
    return 0
