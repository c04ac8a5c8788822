#!/usr/bin/env python3
"""Holds every include of core/, the SDK, plugins, accelerators and samples to the table of rooms in docs/explanation/architecture.md.

    rooms.py        prints every finding; ends with 1 if there is one

A row of the table: `room`, or several, what it does, what it may know ("nothing", "those above", or rooms by their last names, of which
core/include is what programs embed), and the headers of core/include/pliant that are its own. Rows are in the order of who may know whom.
A plugin knows no other, only the folders `common` that several share.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs/explanation/architecture.md"
PUBLIC = ROOT / "core/include"
EMBEDDED = "core/include"
PLUGINS = {"plugins": 3, "accelerators": 2}  # of a path, the names that say which plugin it is of
SHARED = {"common"}
ROW = re.compile(r"^\| (`[\w/]+`(?:, `[\w/]+`)*) \|[^|]*\|([^|]*)\|([^|]*)\|$")
NAME = re.compile(r"`([\w/]+)`")
INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')

findings = []


def found(where, what):
    findings.append(f"{where}: {what}")


class Room:
    def __init__(self, folder, knows, headers):
        self.folder, self.knows, self.headers = folder, knows, headers


def read_rooms():
    rooms = []
    for line in TABLE.read_text().splitlines():
        match = ROW.match(line)
        folders = NAME.findall(match[1]) if match else []
        if not folders or folders == [EMBEDDED]:
            continue
        above = [room.folder for room in rooms]
        said = match[2].strip()
        if said == "nothing":
            knows = []
        elif said == "those above":
            knows = above
        else:
            names = NAME.findall(said)
            knows = [folder for folder in [EMBEDDED, *above] if folder in names or folder.rsplit("/", 1)[-1] in names]
            if len(knows) != len(names):
                found(TABLE.relative_to(ROOT), f"{folders[0]} may know {said}, of which some is no room above it")
        for folder in folders:
            rooms.append(Room(folder, {folder, *knows}, re.findall(r"`(\w+\.hpp)`", match[3])))
    return rooms


def room_of(path, rooms):
    path = path.relative_to(ROOT)
    if path.parts[:2] == ("core", "include"):
        return next((room for room in rooms if path.name in room.headers), None)
    folders = [room for room in rooms if pathlib.PurePath(room.folder) in path.parents]
    return max(folders, key=lambda room: len(room.folder), default=None)


def target_of(source, name):
    """The file of a room that an include of `name` means; None: it is none of them."""
    for folder in (source.parent, ROOT / "core/src", ROOT / "core", ROOT / "core/cli", PUBLIC, ROOT / "sdk/include", ROOT / "sdk", ROOT / "accelerators",
                   ROOT):
        if (folder / name).is_file():
            return (folder / name).resolve()
    return None


def check_file(source, rooms):
    where = source.relative_to(ROOT)
    room = room_of(source, rooms)
    if room is None:
        found(where, f"{TABLE.relative_to(ROOT)} gives it no room")
        return
    for number, line in enumerate(source.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        target = target_of(source, match[1]) if match else None
        if target is None:
            continue
        if PUBLIC in source.parents and PUBLIC not in target.parents:
            found(f"{where}:{number}", f"a public header opens a door to the inside: {match[1]}")
        if PUBLIC in target.parents and EMBEDDED in room.knows:
            continue
        other = room_of(target, rooms)  # a file without one is a finding of its own
        if other is not None and other.folder not in room.knows:
            found(f"{where}:{number}", f"{room.folder} may not know {other.folder}: {match[1]}")
        elif room.folder in PLUGINS and other is room:
            own, its = (path.relative_to(ROOT).parts[:PLUGINS[room.folder]] for path in (source, target))
            if own != its and its[-1] not in SHARED:
                found(f"{where}:{number}", f"{'/'.join(own)} may not know {'/'.join(its)}: {match[1]}")


def main():
    rooms = read_rooms()
    if len(rooms) < 10:
        found(TABLE.relative_to(ROOT), "it has no table of rooms that this program can read")
    for room in rooms:
        if not (ROOT / room.folder).is_dir():
            found(TABLE.relative_to(ROOT), f"there is no room {room.folder}")
    headers = [name for room in rooms for name in room.headers]
    for name in sorted(set(headers)):
        if headers.count(name) > 1 or not (PUBLIC / "pliant" / name).is_file():
            found(TABLE.relative_to(ROOT), f"{name} is no public header, or stands in two rooms")
    folders = ("core", "sdk/include", "sdk/testkit", "plugins", "accelerators", "samples")
    for source in sorted(path for folder in folders for path in (ROOT / folder).rglob("*")):
        if source.suffix in (".hpp", ".h", ".c", ".cpp"):
            check_file(source, rooms)
    print("\n".join(findings), file=sys.stderr, end="\n" if findings else "")
    return 1 if findings else 0


sys.exit(main())
