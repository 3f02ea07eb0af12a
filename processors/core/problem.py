"""What is wrong with something a user wrote, as data that every surface can show."""

import msgspec


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: where (`field`), what was written (`value`), what is allowed, what would do."""

    field: str
    value: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        told = f"{self.field}: {self.value!r} {self.message}"
        return f"{told}; {self.hint}" if self.hint else told


class InvalidSchedule(ValueError):
    """A schedule nobody can run. Show all `problems` to the writer; nothing was accepted."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
