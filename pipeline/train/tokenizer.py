"""The base model's tokenizer with its chat template, as training renders."""

from pathlib import Path

from transformers import AutoTokenizer, GenerationConfig

from pipeline.train.rows import Rendering


def load_rendering(base_path: Path, max_length: int) -> Rendering:
    """The base model's tokenizer, with the tokens at which an engine stops."""
    tokenizer = AutoTokenizer.from_pretrained(base_path)
    stops = {tokenizer.eos_token_id}
    if (base_path / "generation_config.json").is_file():
        found = GenerationConfig.from_pretrained(base_path).eos_token_id
        stops |= set(found) if isinstance(found, list) else {found}
    return Rendering(tokenizer, frozenset(stops - {None}), max_length)
