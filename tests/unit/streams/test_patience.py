import pytest

from streams.errors import Unavailable
from streams.patience import until_answered


def test_what_is_not_answered_at_once_is_asked_again() -> None:
    answers = iter([None, None, 7])

    def question() -> int:
        answer = next(answers)
        if answer is None:
            raise Unavailable("not yet")
        return answer

    assert until_answered(question) == 7


def test_when_the_time_is_over_the_last_reason_is_raised() -> None:
    asked = []

    def question() -> int:
        asked.append(1)
        raise Unavailable(f"no {len(asked)}")

    with pytest.raises(Unavailable, match="no 1"):
        until_answered(question, within_s=0)


def test_other_errors_are_not_asked_away() -> None:
    def question() -> int:
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        until_answered(question)
