"""A folder of numbered records, ``1.json``, ``2.json``…: append-only, and of many writers of one number exactly one succeeds."""

from __future__ import annotations

from typing import Generic, TypeVar

from artifacts.base import Document
from artifacts.errors import StoreError
from artifacts.store.backend import Backend
from artifacts.store.layout import number_of
from artifacts.store.sealed import seal, unseal

D = TypeVar("D", bound=Document)


class NumberedLog(Generic[D]):
    def __init__(self, backend: Backend, folder: str, model: type[D]) -> None:
        self._backend, self._folder, self._model = backend, folder, model

    def numbers(self) -> list[int]:
        """The numbers there are, rising."""
        found = (number_of(info.key) for info in self._backend.objects(self._folder))
        return sorted(number for number in found if number is not None)

    def read(self, number: int) -> D:
        """Record ``number``; ``StoreError`` when it is missing or altered."""
        data = self._backend.get(self.key(number))
        if data is None:
            raise StoreError(f"{self.where(number)} is missing", fix="restore it from a backup")
        return unseal(data, self._model, where=self.where(number))

    def last(self) -> tuple[int, D | None]:
        """The highest number and its record; (0, None) when there is none."""
        numbers = self.numbers()
        return (numbers[-1], self.read(numbers[-1])) if numbers else (0, None)

    def append(self, number: int, record: D) -> bool:
        """Write record ``number``; False when somebody else has."""
        return self._backend.put_if_absent(self.key(number), seal(record))

    def key(self, number: int) -> str:
        return f"{self._folder}/{number}.json"

    def where(self, number: int) -> str:
        return f"{self._backend.url}/{self.key(number)}"
