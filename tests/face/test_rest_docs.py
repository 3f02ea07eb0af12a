"""The commands of the how-to do what it says."""

import re
import shlex
from pathlib import Path
from typing import Any

from standing import Answer, Standing

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "use-rest.md"


def curl(face: Standing, line: str) -> Answer:
    """What `curl` would send."""
    words = iter(shlex.split(line.replace("\\\n", " "))[1:])
    method, url, headers, body = "GET", "", dict[str, str](), None
    for word in words:
        match word:
            case "-X":
                method = next(words)
            case "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            case "-d":
                body = next(words).replace("greetings", face.topic).encode()
            case _:
                url = word
    path = url.removeprefix("http://127.0.0.1:8765").replace("/hello", "/how-to-hello")
    return face.http(method, path.replace("job=hello", "job=how-to-hello"), None, headers, body)


def test_every_command_of_the_how_to_is_answered(face: Standing) -> None:
    answers: list[Any] = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        for line in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            answer = curl(face, line)
            assert answer.status == 200, (line, answer.body)
            answers.append(answer.json)
            if answer.json.get("execution_id"):
                face.executions("how-to-hello", 1)
            if "horolog-sequence" in answer.headers:
                face.jobs("GET", f"how-to-hello?min_seq={answer.headers['horolog-sequence']}")
    put, job, patched, triggered, executions, preview = answers
    assert (put["version"], patched["version"]) == (1, 2)
    assert job["job"] == "how-to-hello"
    assert triggered["execution_id"].startswith("default/how-to-hello:")
    assert executions["executions"]
    assert preview["runs"][0]["zone"] == "Europe/Paris"
    face.jobs("DELETE", "how-to-hello")
