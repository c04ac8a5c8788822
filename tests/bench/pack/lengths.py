"""Lengths of sequences for the comparison of packers: drawn with a fixed seed or read from a file; .npy without numpy."""
import ast
import array
import bisect
import itertools
import json
import math
import pathlib
import random
import re

SEED = 7020
HISTOGRAM = pathlib.Path(__file__).with_name("wikipedia_histogram.json")
TYPE_CODES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q"}


def wiki(count):
    """Drawn from the histogram of the Wikipedia, longest 512."""
    sums = list(itertools.accumulate(json.loads(HISTOGRAM.read_text(encoding="utf-8"))["counts"]))
    draw = random.Random(SEED).random
    return array.array("i", (bisect.bisect_right(sums, draw() * sums[-1]) + 1 for _ in range(count)))


def lognormal(count):
    """Median 300, sigma 1, without an upper end."""
    draw = random.Random(SEED).lognormvariate
    return array.array("i", (min(math.ceil(draw(math.log(300.0), 1.0)), 2**31 - 1) for _ in range(count)))


DRAWN = {"wiki": wiki, "lognormal": lognormal}


def clipped(lengths, budget):
    return array.array("i", (length if length < budget else budget for length in lengths))


def write_npy(path, lengths):
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(lengths)},), }}".ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode("ascii"))
        lengths.tofile(file)


def read_npy(path):
    """A one-dimensional array of integers; ValueError for anything else."""
    content = pathlib.Path(path).read_bytes()
    if content[:6] != b"\x93NUMPY" or len(content) < 12:
        raise ValueError("no .npy file")
    width = 2 if content[6] == 1 else 4
    start = 8 + width + int.from_bytes(content[8:8 + width], "little")
    header = ast.literal_eval(content[8 + width:start].decode("latin-1").strip())
    kind = header["descr"]
    if len(header["shape"]) != 1 or not isinstance(kind, str) or kind[0] not in "<|" or kind[1:] not in TYPE_CODES:
        raise ValueError("not a one-dimensional array of little-endian integers")
    numbers = array.array(TYPE_CODES[kind[1:]])
    numbers.frombytes(content[start:start + header["shape"][0] * numbers.itemsize])
    if len(numbers) != header["shape"][0]:
        raise ValueError("the file is cut short")
    return numbers


def read_lengths(path):
    """Every length of an .npy, or of text with a number in every line. ValueError says what is wrong."""
    if path.suffix == ".npy":
        numbers = read_npy(path)
    else:
        words = path.read_text(encoding="utf-8", errors="replace").split()
        wrong = next((word for word in words if not re.fullmatch(r"[0-9]{1,10}", word)), None)
        if wrong is not None:
            raise ValueError(f"'{wrong[:20]}' is no length; allowed are .npy and text with a number in every line")
        numbers = [int(word) for word in words]
    if not numbers:
        raise ValueError("no lengths in it")
    if min(numbers) < 1 or max(numbers) >= 2**31:
        raise ValueError(f"lengths are 1 to 2^31 - 1; there are {min(numbers)} to {max(numbers)}")
    return array.array("i", numbers)
