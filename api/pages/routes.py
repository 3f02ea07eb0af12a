"""The pages."""

from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.staticfiles import StaticFiles

from ..gateway import Gateway

HERE: Final = Path(__file__).parent


def static() -> StaticFiles:
    """Style and scripts."""
    return StaticFiles(directory=HERE / "static")


def routes(gateway: Gateway) -> APIRouter:
    """The routes."""
    del gateway
    return APIRouter()
