import pytest

from executor.services.files import FileTree, OpenMode
from executor.services.files_nodes import LINKS_MAX, OFFSET_MAX, ROOT, FileError, FileLimits
from tests.support.host_calls import tree_of

NEW = OpenMode(create=True, exclusive=True, write=True)


@pytest.fixture
def files():
    return FileTree(FileLimits(bytes_max=1_000, entries_max=20), created_ns=1)


def make(files, path, contents=b"", now_ns=2):
    inode, _ = files.open_at(ROOT, path, NEW, now_ns)
    files.write(inode, 0, contents, now_ns)
    files.release(inode)
    return inode


def code(call, *arguments, **named):
    with pytest.raises(FileError) as refused:
        call(*arguments, **named)
    return refused.value.code


def test_inode_numbers_are_allotted_in_order_and_never_again(files):
    assert [make(files, "a"), make(files, "b")] == [2, 3]
    files.unlink_at(ROOT, "b", 3)
    assert make(files, "c") == 4


def test_listings_are_sorted_and_leave_out_the_dots(files):
    for name in ("b", "B", "é", "a"):
        make(files, name)
    files.create_directory_at(ROOT, "dir", 2)
    files.symlink_at("a", ROOT, "link", 2)
    assert files.listing(ROOT) == [
        ("B", "regular-file"),
        ("a", "regular-file"),
        ("b", "regular-file"),
        ("dir", "directory"),
        ("link", "symbolic-link"),
        ("é", "regular-file"),
    ]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("", "no-entry"),
        ("/", "not-permitted"),
        ("/file", "not-permitted"),
        ("..", "not-permitted"),
        ("../file", "not-permitted"),
        ("dir/../../file", "not-permitted"),
        ("up", "not-permitted"),
        ("dir/up2/..", "not-permitted"),
        ("fi\0le", "invalid"),
        ("missing/file", "no-entry"),
        ("file/x", "not-directory"),
        ("file/", "not-directory"),
        ("file/.", "not-directory"),
        ("file/..", "not-directory"),
        ("loop", "loop"),
        ("loop/x", "loop"),
        ("dangling", "no-entry"),
        ("x" * 256, "name-too-long"),
        ("é" * 128, "name-too-long"),
        ("dir/" * 1024 + "x", "name-too-long"),
    ],
)
def test_a_path_that_leads_nowhere_or_out_is_refused(files, path, expected):
    make(files, "file")
    files.create_directory_at(ROOT, "dir", 2)
    files.symlink_at("..", ROOT, "up", 2)
    files.symlink_at("../..", ROOT, "dir/up2", 2)
    files.symlink_at("loop", ROOT, "loop", 2)
    files.symlink_at("nothing", ROOT, "dangling", 2)
    assert code(files.lookup, ROOT, path, follow=True) == expected


@pytest.mark.parametrize(
    "path", ["dir/file", "./dir/.//file", "dir/../dir/file", "link/file", "dir/self/file", "deep"]
)
def test_a_path_may_wander_inside_its_directory(files, path):
    files.create_directory_at(ROOT, "dir", 2)
    inode = make(files, "dir/file")
    files.symlink_at("dir/", ROOT, "link", 2)
    files.symlink_at("../dir", ROOT, "dir/self", 2)
    files.symlink_at("link/self/self/file", ROOT, "deep", 2)
    assert files.lookup(ROOT, path, follow=True) == inode


def test_each_directory_is_a_sandbox_of_its_own(files):
    files.create_directory_at(ROOT, "dir", 2)
    make(files, "file")
    files.symlink_at("../file", ROOT, "dir/link", 2)
    directory = files.lookup(ROOT, "dir", follow=False)
    assert files.lookup(ROOT, "dir/link", follow=True) == files.lookup(ROOT, "file", follow=False)
    assert code(files.lookup, directory, "link", follow=True) == "not-permitted"
    assert code(files.create_directory_at, directory, "../x", 3) == "not-permitted"


def test_names_may_be_as_long_as_posix_has_it(files):
    make(files, "x" * 255)
    assert files.listing(ROOT) == [("x" * 255, "regular-file")]


def test_a_link_that_goes_through_forty_links_is_the_longest(files):
    make(files, "0")
    for number in range(1, 20):
        files.symlink_at(f"{number - 1}", ROOT, f"{number}", 2)
    assert files.lookup(ROOT, "19", follow=True) == files.lookup(ROOT, "0", follow=False)
    deep = FileTree()
    make(deep, "0")
    for number in range(1, 42):
        deep.symlink_at(f"{number - 1}", ROOT, f"{number}", 2)
    assert deep.lookup(ROOT, "40", follow=True) == 2
    assert code(deep.lookup, ROOT, "41", follow=True) == "loop"


def test_a_write_past_the_end_leaves_zeros(files):
    inode = make(files, "a", b"abc")
    files.write(inode, 5, b"x", 3)
    assert files.read(inode, 0, 100) == b"abc\0\0x"
    files.write(inode, 1, b"BC", 3)
    assert files.read(inode, 0, 3) == b"aBC"
    files.write(inode, 50, b"", 3)
    assert files.size(inode) == 6
    assert files.read(inode, 100, 5) == b""


def test_a_file_is_cut_and_extended(files):
    inode = make(files, "a", b"abcdef")
    files.set_size(inode, 2, 3)
    files.set_size(inode, 4, 4)
    assert files.read(inode, 0, 10) == b"ab\0\0"
    assert files.used_bytes == 4


def test_offsets_end_where_posix_has_it(files):
    inode = make(files, "a")
    assert code(files.read, inode, OFFSET_MAX + 1, 1) == "invalid"
    assert code(files.set_size, inode, OFFSET_MAX + 1, 3) == "file-too-large"
    assert code(files.write, inode, OFFSET_MAX, b"x", 3) == "file-too-large"
    assert code(files.write, inode, OFFSET_MAX - 1, b"x", 3) == "quota"


def test_content_beyond_the_quota_is_refused_and_nothing_changes(files):
    inode = make(files, "a", bytes(900))
    assert code(files.write, inode, 900, bytes(101), 3) == "quota"
    assert code(files.set_size, inode, 1_001, 3) == "quota"
    assert code(files.symlink_at, "t" * 101, ROOT, "link", 3) == "quota"
    assert files.size(inode) == 900
    assert files.listing(ROOT) == [("a", "regular-file")]
    files.write(inode, 900, bytes(100), 3)
    assert files.used_bytes == 1_000
    files.unlink_at(ROOT, "a", 4)
    assert files.used_bytes == 0


def test_a_file_that_is_open_counts_until_it_is_released(files):
    inode, created = files.open_at(ROOT, "a", NEW, 2)
    assert created
    files.write(inode, 0, bytes(600), 2)
    files.unlink_at(ROOT, "a", 3)
    assert files.read(inode, 0, 3) == b"\0\0\0"
    assert files.stat(inode).links == 0
    other = make(files, "b")
    assert code(files.set_size, other, 600, 3) == "quota"
    files.release(inode)
    files.set_size(other, 600, 3)


def test_names_beyond_the_quota_are_refused(files):
    for number in range(20):
        make(files, f"{number}")
    assert code(files.open_at, ROOT, "more", NEW, 3) == "quota"
    assert code(files.create_directory_at, ROOT, "more", 3) == "quota"
    assert code(files.symlink_at, "t", ROOT, "more", 3) == "quota"
    assert code(files.link_at, 2, ROOT, "more", 3) == "quota"
    files.rename_at(ROOT, "0", ROOT, "more", 3)
    files.unlink_at(ROOT, "1", 3)
    make(files, "again")


def test_a_hard_link_is_another_name_of_the_same_file(files):
    inode = make(files, "a", b"x")
    files.link_at(files.lookup(ROOT, "a", follow=False), ROOT, "b", 3)
    assert files.lookup(ROOT, "b", follow=False) == inode
    assert files.stat(inode).links == 2
    files.unlink_at(ROOT, "a", 4)
    assert files.read(inode, 0, 5) == b"x"
    files.create_directory_at(ROOT, "dir", 4)
    directory = files.lookup(ROOT, "dir", follow=False)
    assert code(files.link_at, directory, ROOT, "c", 5) == "not-permitted"
    assert code(files.link_at, inode, ROOT, "b", 5) == "exist"
    assert code(files.link_at, inode, ROOT, "c/", 5) == "no-entry"


def test_a_file_has_as_many_names_as_the_link_count_allows():
    files = FileTree(FileLimits(entries_max=100_000))
    inode = make(files, "a")
    for number in range(LINKS_MAX - 1):
        files.link_at(inode, ROOT, f"{number}", 3)
    assert code(files.link_at, inode, ROOT, "more", 3) == "too-many-links"


def test_a_symbolic_link_leads_inside_only(files):
    assert code(files.symlink_at, "/etc", ROOT, "link", 2) == "not-permitted"
    assert code(files.symlink_at, "", ROOT, "link", 2) == "no-entry"
    assert code(files.symlink_at, "a\0b", ROOT, "link", 2) == "invalid"
    assert code(files.symlink_at, "a", ROOT, "link/", 2) == "no-entry"
    files.symlink_at("a b", ROOT, "link", 2)
    assert files.readlink_at(ROOT, "link") == "a b"
    assert files.stat(files.lookup(ROOT, "link", follow=False)).size == 3
    assert code(files.symlink_at, "a", ROOT, "link", 2) == "exist"
    assert code(files.readlink_at, ROOT, ".") == "invalid"


def test_open_says_why_not(files):
    make(files, "file")
    files.create_directory_at(ROOT, "dir", 2)
    files.symlink_at("file", ROOT, "link", 2)

    def refused(path, **mode):
        return code(files.open_at, ROOT, path, OpenMode(**mode), 3)

    assert refused("missing") == "no-entry"
    assert refused("missing/", create=True) == "is-directory"
    assert refused("missing", create=True, directory=True) == "invalid"
    assert refused("file", create=True, exclusive=True) == "exist"
    assert refused("link", create=True, exclusive=True, follow=True) == "exist"
    assert refused("link") == "loop"
    assert refused("file", directory=True) == "not-directory"
    assert refused("link", directory=True, follow=True) == "not-directory"
    assert refused("dir", write=True) == "is-directory"
    assert refused("dir", truncate=True) == "is-directory"
    assert refused("dir", create=True) == "is-directory"


def test_open_makes_what_a_dangling_link_points_to(files):
    files.symlink_at("target", ROOT, "link", 2)
    inode, created = files.open_at(ROOT, "link", OpenMode(create=True, follow=True), 3)
    assert created
    assert files.lookup(ROOT, "target", follow=False) == inode


def test_open_truncates(files):
    inode = make(files, "a", b"abc")
    files.open_at(ROOT, "a", OpenMode(truncate=True, write=True), 3)
    assert files.size(inode) == 0
    assert files.used_bytes == 0


def test_a_directory_goes_only_when_it_is_empty(files):
    files.create_directory_at(ROOT, "dir/", 2)
    make(files, "dir/file")
    assert code(files.remove_directory_at, ROOT, "dir", 3) == "not-empty"
    assert code(files.remove_directory_at, ROOT, "dir/file", 3) == "not-directory"
    assert code(files.remove_directory_at, ROOT, "dir/.", 3) == "invalid"
    assert code(files.remove_directory_at, ROOT, ".", 3) == "invalid"
    assert code(files.unlink_at, ROOT, "dir", 3) == "is-directory"
    assert code(files.unlink_at, ROOT, "dir/file/", 3) == "not-directory"
    files.unlink_at(ROOT, "dir/file", 3)
    files.remove_directory_at(ROOT, "dir/", 3)
    assert files.listing(ROOT) == []


def test_a_link_to_a_directory_is_not_a_directory_to_remove(files):
    files.create_directory_at(ROOT, "dir", 2)
    files.symlink_at("dir", ROOT, "link", 2)
    assert code(files.remove_directory_at, ROOT, "link", 3) == "not-directory"
    assert code(files.remove_directory_at, ROOT, "link/", 3) == "not-directory"
    assert code(files.create_directory_at, ROOT, "link/", 3) == "exist"
    files.unlink_at(ROOT, "link", 3)
    assert files.listing(ROOT) == [("dir", "directory")]


def test_nothing_can_be_made_in_a_directory_that_is_gone(files):
    files.create_directory_at(ROOT, "dir", 2)
    directory, _ = files.open_at(ROOT, "dir", OpenMode(), 2)
    inode = make(files, "file")
    files.remove_directory_at(ROOT, "dir", 3)
    assert code(files.open_at, directory, "x", NEW, 4) == "no-entry"
    assert code(files.create_directory_at, directory, "x", 4) == "no-entry"
    assert code(files.link_at, inode, directory, "x", 4) == "no-entry"
    assert code(files.rename_at, ROOT, "file", directory, "x", 4) == "no-entry"
    assert files.listing(directory) == []
    files.release(directory)


def test_rename_replaces_a_file_and_an_empty_directory(files):
    make(files, "a", b"a")
    make(files, "b", b"b")
    files.rename_at(ROOT, "a", ROOT, "b", 3)
    assert files.read(files.lookup(ROOT, "b", follow=False), 0, 5) == b"a"
    files.create_directory_at(ROOT, "d", 3)
    files.create_directory_at(ROOT, "e", 3)
    files.rename_at(ROOT, "d/", ROOT, "e/", 4)
    assert files.listing(ROOT) == [("b", "regular-file"), ("e", "directory")]
    files.rename_at(ROOT, "e", ROOT, "f", 4)
    files.rename_at(ROOT, "b", ROOT, "f/b", 4)
    assert files.used_entries == 2
    assert files.used_bytes == 1


def test_rename_says_why_not(files):
    make(files, "file")
    make(files, "other")
    for directory in ("dir", "dir/sub", "empty"):
        files.create_directory_at(ROOT, directory, 2)
    files.symlink_at("empty", ROOT, "link", 2)

    def refused(old, new):
        return code(files.rename_at, ROOT, old, ROOT, new, 3)

    assert refused("missing", "x") == "no-entry"
    assert refused("file", "missing/x") == "no-entry"
    assert refused("file", "empty") == "is-directory"
    assert refused("file", "x/") == "not-directory"
    assert refused("file/", "x") == "not-directory"
    assert refused("dir", "file") == "not-directory"
    assert refused("empty", "dir") == "not-empty"
    assert refused("dir", "dir/sub/x") == "invalid"
    assert refused("dir", "dir/x") == "invalid"
    assert refused(".", "x") == "invalid"
    assert refused("file", ".") == "invalid"
    assert refused("link/", "x") == "not-directory"
    assert refused("file", "../x") == "not-permitted"


def test_a_rename_to_another_name_of_the_same_file_does_nothing(files):
    inode = make(files, "a")
    files.link_at(inode, ROOT, "b", 2)
    before = tree_of(files)
    files.rename_at(ROOT, "a", ROOT, "b", 3)
    assert tree_of(files) == before


def test_times_are_those_that_the_caller_gives(files):
    inode = make(files, "a", b"x", now_ns=10)
    assert files.stat(ROOT).modified_ns == 10
    files.read(inode, 0, 1)
    files.write(inode, 0, b"y", 20)
    stat = files.stat(inode)
    assert (stat.accessed_ns, stat.modified_ns, stat.changed_ns) == (10, 20, 20)
    files.link_at(inode, ROOT, "b", 30)
    stat = files.stat(inode)
    assert (stat.accessed_ns, stat.modified_ns, stat.changed_ns) == (10, 20, 30)
    files.set_times(inode, 1, None, 40)
    stat = files.stat(inode)
    assert (stat.accessed_ns, stat.modified_ns, stat.changed_ns) == (1, 20, 40)
    files.rename_at(ROOT, "a", ROOT, "c", 50)
    assert files.stat(ROOT).modified_ns == 50
    files.unlink_at(ROOT, "b", 60)
    assert files.stat(inode).changed_ns == 60


def test_initial_files_come_with_their_directories_and_may_be_read_only(files):
    files.add_file("/etc/app/config", b"x=1", writable=False, now_ns=5)
    files.add_file("notes", b"", writable=True, now_ns=5)
    inode = files.lookup(ROOT, "etc/app/config", follow=False)
    assert files.read(inode, 0, 10) == b"x=1"
    assert files.stat(inode).modified_ns == 5
    assert code(files.open_at, ROOT, "etc/app/config", OpenMode(write=True), 6) == "access"
    assert code(files.open_at, ROOT, "etc/app/config", OpenMode(truncate=True), 6) == "access"
    assert code(files.set_times, inode, 1, 1, 6) == "not-permitted"
    files.open_at(ROOT, "notes", OpenMode(write=True), 6)
    assert code(files.add_file, "notes", b"", writable=True, now_ns=5) == "exist"
    assert code(files.add_file, "notes/x", b"", writable=True, now_ns=5) == "not-directory"
    assert code(files.add_file, "/", b"", writable=True, now_ns=5) == "no-entry"
    assert code(files.add_file, "../x", b"", writable=True, now_ns=5) == "not-permitted"
