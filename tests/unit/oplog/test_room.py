import errno
import resource

from oplog.room import MORE_FILES, has_room, is_cut_short, is_full, is_out_of_files, refusal


def test_no_space_quota_and_file_size_mean_full():
    assert all(is_full(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG))
    assert not any(is_full(code) for code in (errno.EIO, errno.EACCES, None, 0, -30791))


def test_only_an_io_error_can_be_a_write_cut_short():
    assert is_cut_short(errno.EIO)
    assert not is_cut_short(errno.EACCES)
    assert not is_cut_short(None)


def test_too_many_open_files_are_no_matter_of_permissions(tmp_path):
    assert is_out_of_files(errno.EMFILE)
    assert is_out_of_files(errno.ENFILE)
    assert not is_out_of_files(errno.EACCES)
    for code, hint in ((errno.EMFILE, MORE_FILES), (errno.EACCES, "see its mode")):
        assert refusal("it", OSError(code, "no"), tmp_path, "see its mode").hint == hint


def test_an_ordinary_disk_has_room_for_little_and_none_for_everything(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"")
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    assert has_room(file, 1000)
    assert not has_room(file, 1 << 60)


def test_what_cannot_be_asked_counts_as_room(tmp_path):
    assert has_room(tmp_path / "missing", 1 << 60)
