"""The Python functions that docker-compose.yml's example worker runs: put yours in its place."""

from horolog import App, Context

app = App()


@app.schedule(every="1m", payload={"name": "compose"})
@app.task("greet")
def greet(ctx: Context, name: str) -> dict[str, str]:
    """Greet, once a minute; the result is in the execution."""
    return {"greeting": f"hello {name}", "job": ctx.job}
