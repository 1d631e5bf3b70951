"""Checkpoints: where they come from, their conversion, their hashes, and whether target and drafter fit."""

from ddtree.models.checkpoints import prepare
from ddtree.models.errors import ModelError
from ddtree.models.files import ModelFiles
from ddtree.models.tokenizer import Message, Tokenizer

__all__ = ["Message", "ModelError", "ModelFiles", "Tokenizer", "prepare"]
