"""Windows of images as the columns of a matrix, with the batch innermost."""


def turn(images, turned, begin, end):
    """Put the batch last, [channels, places, batch], for the channels from `begin` to `end`."""
    for c in range(begin, end):
        for i in range(turned.shape[1]):
            line = turned[c, i]
            for n in range(line.size):
                line[n] = images[n, c, i]


def turn_back(turned, addends, images, begin, end):
    """Put the batch first again, and add a number to each channel."""
    for c in range(begin, end):
        addend = addends[c]
        for n in range(turned.shape[2]):
            line = images[n, c]
            for i in range(line.size):
                line[i] = turned[c, i, n] + addend


def unfold(turned, height, width, matrix, begin, end):
    """Write the windows to the columns of a matrix, by place and image, for the channels from `begin` to `end`.

    `height` and `width` are number, length and stride of windows, dilation, elements and padding along a dimension;
    `turned` is [channels, height * width, batch].
    """
    # Elements by their places: reshaped views take numba half as long again to compile.
    (rows, size, down, apart, length, top), (columns, breadth, along, beside, reach, left) = height, width
    batch = turned.shape[2]
    for c in range(begin, end):
        for i in range(size):
            for j in range(breadth):
                line = (c * size + i) * breadth + j
                for row in range(rows):
                    for column in range(columns):
                        r, s = row * down - top + i * apart, column * along - left + j * beside
                        at, pixel = (row * columns + column) * batch, r * reach + s
                        if 0 <= r < length and 0 <= s < reach:
                            for n in range(batch):
                                matrix[line, at + n] = turned[c, pixel, n]
                        else:
                            for n in range(batch):
                                matrix[line, at + n] = 0


def fold(turned, height, width, matrix, begin, end):
    """Add the columns of a matrix at the places from which `unfold` takes them."""
    (rows, size, down, apart, length, top), (columns, breadth, along, beside, reach, left) = height, width
    batch = turned.shape[2]
    for c in range(begin, end):
        pixels = turned[c].reshape(length, reach, batch)
        pixels[:] = 0
        for i in range(size):
            for j in range(breadth):
                elements = matrix[(c * size + i) * breadth + j].reshape(rows, columns, batch)
                for row in range(rows):
                    for column in range(columns):
                        r, s = row * down - top + i * apart, column * along - left + j * beside
                        if 0 <= r < length and 0 <= s < reach:
                            for n in range(batch):
                                pixels[r, s, n] += elements[row, column, n]
