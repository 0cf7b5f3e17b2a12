from executor.records import time_text
from executor.services.files import FileTree
from executor.services.files_nodes import ROOT
from executor.worker.file_view import view


def test_a_time_that_no_text_can_name_is_the_last_one_that_has_one():
    files = FileTree(created_ns=7)
    files.set_times(ROOT, ((1 << 64) - 1) * 1_000_000_000, None, 8)
    found = view(files, "c/w", "/").file
    assert time_text(found.accessed_at) == "9999-12-31T23:59:59.999999999Z"
    assert (found.modified_at, found.changed_at) == (7, 8)
