"""Parameters of a model that come once its state is settled."""
from __future__ import annotations

from typing import Any

import torch

from pliant._errors import Error, Status


class Members:
    """Notices parameters that are added to a model, by what costs little at each step."""

    def __init__(self, model: torch.nn.Module, maker: str) -> None:
        """`maker`: the function that has settled which parameters there are."""
        self._model = model
        self._maker = maker
        self._names = frozenset(name for name, _ in model.named_parameters())
        self._look()

    def require_none_added(self) -> None:
        """Raises Error for a parameter that was added since."""
        if not any(len(members) != count for members, count in self._counts) and not any(home.get(name) is not None for home, name in self._empty):
            return
        added = next((name for name, _ in self._model.named_parameters() if name not in self._names), None)
        if added is not None:
            raise Error(f"parameter {added} was added to the model after {self._maker} was called; what comes later has no place in the job's state: add it "
                        "before", Status.FAILED_PRECONDITION)
        self._look()

    def _look(self) -> None:
        """Modules and parameters of each module."""
        modules: list[Any] = list(self._model.modules())
        self._counts = [(members, len(members)) for module in modules for members in (module._parameters, module._modules)]
        self._empty = [(module._parameters, name) for module in modules for name, parameter in module._parameters.items() if parameter is None]
