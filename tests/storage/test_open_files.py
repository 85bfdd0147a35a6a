"""The pool of open files: who has to let go, and who must not."""

from pathlib import Path

from gregor.storage.disk.files import OsFiles
from gregor.storage.disk.open_files import OpenFiles, SharedFile


class User:
    def __init__(self, pool: OpenFiles, path: Path) -> None:
        self.recently_used = False
        self.has_let_go = False
        self.file: SharedFile | None = None
        self.file = pool.open(str(path), self, create=True)

    def let_go(self) -> None:
        self.has_let_go = True
        if self.file is not None:
            self.file.close()


def test_whoever_opens_a_file_keeps_it_even_if_all_others_are_busy(tmp_path: Path) -> None:
    pool = OpenFiles(OsFiles(), max_open=3)
    users: list[User] = []
    for number in range(10):
        for user in users:
            user.recently_used = True
        users.append(User(pool, tmp_path / str(number)))
        assert not users[-1].has_let_go
        assert len(pool) <= 3
    assert sum(not user.has_let_go for user in users) == 3
    for user in users:
        user.let_go()


def test_who_was_used_stays_longer(tmp_path: Path) -> None:
    pool = OpenFiles(OsFiles(), max_open=3)
    users = [User(pool, tmp_path / str(number)) for number in range(3)]
    for user in users:
        user.recently_used = False
    users[0].recently_used = True
    newest = User(pool, tmp_path / "newest")
    assert [user.has_let_go for user in (*users, newest)] == [False, True, False, False]
    for user in (*users, newest):
        user.let_go()
