"""The one error that lab commands print without a traceback."""


class LabError(Exception):
    """Something the user can fix: states what failed, and how to fix it.

    The command line prints it as `error: WHAT` and `fix: FIX`, and exits with 1.
    """

    def __init__(self, what: str, *, fix: str) -> None:
        super().__init__(f"{what}\n  fix: {fix}")
        self.what = what
        self.fix = fix
