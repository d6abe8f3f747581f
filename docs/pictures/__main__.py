"""Writes every picture beside this file."""

from pathlib import Path

from docs.pictures import pictures

for name, picture in pictures().items():
    Path(__file__).with_name(name).write_text(picture.svg(), encoding="utf-8")
