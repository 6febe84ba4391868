"""Functions that only compiled code calls, as code to be linked in: optimised and made machine code of as parts of what Python calls.

Numba optimises every function by itself with all it calls, and once more as a part of each function that calls it. Here LLVM sees a
function once for each entry; that halves what a first start waits for. This stands on numba's inner interfaces, whose version is pinned.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding as llvm
from numba.core import caching
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult


class Part(JITCodeLibrary):  # type: ignore[misc]
    """A function's code with that of all it calls, hardly optimised and never run by itself."""

    def _optimize_functions(self, module: Any) -> None:
        """Drop what nothing uses, addresses of this process among it, which could not be stored."""
        module.data_layout = self._codegen._data_layout
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        passes.add_instruction_combine_pass()
        passes.add_global_dead_code_eliminate_pass()
        passes.add_strip_dead_prototype_pass()
        passes.run(module, self._codegen._pass_builder())

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        return 0

    @property
    def codegen(self) -> Any:
        return _NowhereToRun()

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        return self.name, "part", self._get_module_for_linking().as_bitcode()


class _NowhereToRun:
    def set_env(self, name: str, environment: object) -> None:
        """What runs by itself has an environment; a part uses that of the function it is linked into."""


class PartCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler, which puts what it makes into a part."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.state.library = Part(self.state.targetctx.codegen(), "part")


class _Loading:
    """What a stored result asks of its target while it is read back."""

    def __init__(self, target: Any) -> None:
        self._target, self.typing_context, self.get_executable = target, target.typing_context, target.get_executable

    def codegen(self) -> _Loading:
        return self

    def unserialize_library(self, stored: tuple[str, str, bytes]) -> Part:
        name, _, bitcode = stored
        part = Part(self._target.codegen(), name)
        part._final_module = part._shared_module = llvm.parse_bitcode(bitcode)
        part._finalize_final_module()
        return part


class _Stored(caching.CompileResultCacheImpl):  # type: ignore[misc]
    def rebuild(self, target: Any, payload: Any) -> CompileResult:
        return CompileResult._rebuild(_Loading(target), *payload)._replace(target_context=target)


class PartCache(caching.Cache):  # type: ignore[misc]
    """Numba's cache on disk, of parts."""

    _impl_class = _Stored  # type: ignore[assignment]
