"""What scripts/abidiff lets a header change, and what not.

    abidiff_test.py ROOT [ABIDIFF]"""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv[1])
ABIDIFF = sys.argv[2] if len(sys.argv) > 2 else "abidiff"
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("abidiff", str(ROOT / "scripts/abidiff"))
TOOL = importlib.util.module_from_spec(importlib.util.spec_from_loader("abidiff", LOADER))
LOADER.exec_module(TOOL)
HEADER = (ROOT / "core/capi/include/pliant.h").read_text()


class AHeaderThatChanges(unittest.TestCase):
    def differences(self, before, after):
        self.assertEqual(HEADER.count(before), 1, before)
        return TOOL.differences(HEADER, HEADER.replace(before, after), abidiff=ABIDIFF)

    def test_the_same_header_has_no_differences(self):
        self.assertEqual(TOOL.differences(HEADER, HEADER, abidiff=ABIDIFF), "")

    def test_a_field_at_the_end_of_a_struct_is_no_difference(self):
        self.assertEqual(self.differences("} pliant_run_options_t;", "  int64_t later;\n} pliant_run_options_t;"), "")

    def test_a_new_function_is_no_difference(self):
        self.assertEqual(self.differences("PLIANT_API const char* pliant_version(void);",
                                          "PLIANT_API const char* pliant_version(void);\nPLIANT_API int32_t pliant_later(int32_t a);"), "")

    def test_a_field_in_the_middle_of_a_struct_is_named(self):
        self.assertIn("early", self.differences("  int64_t workers;\n", "  int64_t early;\n  int64_t workers;\n"))

    def test_a_field_of_another_type_is_named(self):
        self.assertIn("workers", self.differences("  int64_t workers;\n", "  double workers;\n"))

    def test_a_function_that_is_gone_is_named(self):
        self.assertIn("pliant_version", self.differences("PLIANT_API const char* pliant_version(void);", ""))

    def test_a_parameter_of_another_type_is_named(self):
        self.assertIn("pliant_check_version", self.differences("pliant_check_version(uint32_t header)", "pliant_check_version(uint64_t header)"))


class AnEarlierHeader(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments):
        subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, capture_output=True)

    def commit(self, text):
        header = self.root / "core/capi/include/pliant.h"
        header.parent.mkdir(parents=True, exist_ok=True)
        header.write_text(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", text)

    def test_on_main_it_is_that_of_the_commit_before(self):
        self.commit("one")
        self.assertEqual(TOOL.earlier_header(self.root), "")
        self.commit("two")
        self.assertEqual(TOOL.earlier_header(self.root), "one")

    def test_on_a_branch_it_is_that_where_the_branch_left_main(self):
        for text in ("one", "two"):
            self.commit(text)
        self.git("checkout", "--quiet", "-b", "work")
        for text in ("three", "four"):
            self.commit(text)
        self.assertEqual(TOOL.earlier_header(self.root), "two")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
