"""Reads character vectors out of an R lazy-load database (NAME.rdx + NAME.rdb), without R.

The .rdx is a gzip-compressed serialised list whose `variables` maps a name to (offset, size) in the .rdb. Each entry there is
a 4-byte big-endian uncompressed size and a zlib stream, which holds one serialised R object in XDR form.
"""
import gzip
import struct
import zlib

NULL, SYMBOL, PAIRLIST, CHARACTERS, LOGICALS, INTEGERS, REALS, STRINGS, LIST = 0, 1, 2, 9, 10, 13, 14, 16, 19
NIL_VALUE, REFERENCE = 254, 255
HAS_ATTRIBUTES, HAS_TAG = 0x200, 0x400
LARGEST_OBJECT = 1 << 28  # bytes; a size beyond it means a damaged file


class DamagedDatabase(Exception):
    """The files are not what R writes, or use a part of the format that text does not need."""


class _Unserializer:
    """One serialised object. Vectors become lists, text becomes str, attributes are kept only where `names` needs them."""

    def __init__(self, data):
        self.data = data
        self.at = 0
        self.symbols = []

    def take(self, size):
        if size < 0 or self.at + size > len(self.data):
            raise DamagedDatabase(f"the object ends at byte {len(self.data)}, {self.at + size} are needed")
        self.at += size
        return self.data[self.at - size:self.at]

    def integer(self):
        return struct.unpack(">i", self.take(4))[0]

    def root(self):
        if self.take(2) != b"X\n":
            raise DamagedDatabase("not in R's XDR form")
        version, _, _ = self.integer(), self.integer(), self.integer()
        if version not in (2, 3):
            raise DamagedDatabase(f"serialisation version {version}; 2 and 3 are known")
        if version == 3:
            self.take(self.integer())  # native encoding
        return self.item()

    def numbers(self, code, size):
        count = self.integer()
        return list(struct.unpack(f">{count}{code}", self.take(count * size)))

    def item(self):
        flags = self.integer()
        kind = flags & 0xFF
        if kind in (NULL, NIL_VALUE):
            return None
        if kind == REFERENCE:
            return self.symbols[((flags >> 8) or self.integer()) - 1]
        if kind == SYMBOL:
            self.symbols.append(self.item())
            return self.symbols[-1]
        if kind == CHARACTERS:
            size = self.integer()
            return None if size == -1 else self.take(size).decode("utf-8")
        if kind == PAIRLIST:
            return self.pairlist(flags)
        if kind in (LOGICALS, INTEGERS):
            value = self.numbers("i", 4)
        elif kind == REALS:
            value = self.numbers("d", 8)
        elif kind in (STRINGS, LIST):
            value = [self.item() for _ in range(self.integer())]
        else:
            raise DamagedDatabase(f"R object of type {kind}")
        attributes = self.item() if flags & HAS_ATTRIBUTES else None
        names = (attributes or {}).get("names")
        return dict(zip(names, value)) if names and kind == LIST else value

    def pairlist(self, flags):
        pairs = {}
        while flags & 0xFF == PAIRLIST:
            if flags & HAS_ATTRIBUTES:
                self.item()
            tag = self.item() if flags & HAS_TAG else None
            pairs[tag] = self.item()
            flags = self.integer()
        return pairs


def read_strings(stem, names):
    """The character vectors `names` of the database `stem`.rdx / `stem`.rdb, each as a list of str."""
    try:
        with open(f"{stem}.rdx", "rb") as index_file:
            variables = _Unserializer(gzip.decompress(index_file.read())).root()["variables"]
        with open(f"{stem}.rdb", "rb") as database_file:
            database = database_file.read()
        found = []
        for name in names:
            offset, size = variables[name]
            expected = struct.unpack(">I", database[offset:offset + 4])[0]
            if expected > LARGEST_OBJECT:
                raise DamagedDatabase(f"'{name}' claims {expected} bytes")
            plain = zlib.decompress(database[offset + 4:offset + size])
            if len(plain) != expected:
                raise DamagedDatabase(f"'{name}' has {len(plain)} bytes, {expected} were promised")
            found.append(_Unserializer(plain).root())
        return found
    except (KeyError, IndexError, TypeError, ValueError, struct.error, zlib.error, EOFError, gzip.BadGzipFile,
            RecursionError) as problem:
        raise DamagedDatabase(f"{stem}: {type(problem).__name__}: {problem}") from problem
