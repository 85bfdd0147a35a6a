"""The pool of open files: the files that it closes, and those that it must keep open."""

from pathlib import Path

from gregor.storage.disk.files import OsFiles
from gregor.storage.disk.open_files import OpenFiles, SharedFile


class User:
    def __init__(self, pool: OpenFiles, path: Path) -> None:
        self.recently_used = False
        self.has_release_file = False
        self.file: SharedFile | None = None
        self.file = pool.open(str(path), self, create=True)

    def release_file(self) -> None:
        self.has_release_file = True
        if self.file is not None:
            self.file.close()


def test_the_newest_file_stays_open_even_if_all_others_are_in_use(tmp_path: Path) -> None:
    pool = OpenFiles(OsFiles(), max_open=3)
    users: list[User] = []
    for number in range(10):
        for user in users:
            user.recently_used = True
        users.append(User(pool, tmp_path / str(number)))
        assert not users[-1].has_release_file
        assert len(pool) <= 3
    assert sum(not user.has_release_file for user in users) == 3
    for user in users:
        user.release_file()


def test_recently_used_files_are_closed_last(tmp_path: Path) -> None:
    pool = OpenFiles(OsFiles(), max_open=3)
    users = [User(pool, tmp_path / str(number)) for number in range(3)]
    for user in users:
        user.recently_used = False
    users[0].recently_used = True
    newest = User(pool, tmp_path / "newest")
    assert [user.has_release_file for user in (*users, newest)] == [False, True, False, False]
    for user in (*users, newest):
        user.release_file()
