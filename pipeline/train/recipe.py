"""How an adapter is trained. No torch in here: configuration and flows read it."""

from typing import Literal

from pydantic import Field

from pipeline.records import Method, Record


class Recipe(Record):
    """What determines a training besides its snapshot, its base and its parent adapter."""

    method: Method | Literal["auto"] = "auto"
    """`auto`: pairs -> DPO with an SFT term on chosen; else SFT; unpaired votes of both signs -> KTO."""
    start_from: Literal["base", "stable"] = "base"
    """`stable` continues the adapter in service, which is then the reference too."""
    rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] = 16
    """The ranks that vLLM can be started for."""
    alpha: int = Field(32, ge=1)
    target_modules: str | tuple[str, ...] = "all-linear"
    learning_rate: float = Field(2e-4, gt=0, lt=1)
    epochs: float = Field(1.0, gt=0)
    max_steps: int = Field(-1, ge=-1)
    """Overrides epochs when positive."""
    batch_size: int = Field(4, ge=1)
    gradient_accumulation: int = Field(1, ge=1)
    max_length: int = Field(1024, ge=16)
    """Tokens of prompt and answer together."""
    dpo_beta: float = Field(0.1, gt=0)
    dpo_sft_weight: float = Field(1.0, ge=0)
    """Weight of the SFT term on the chosen answer beside the DPO loss."""
    validation_share: float = Field(0.1, ge=0, le=0.5)
    """Of the training users' rows, kept back to stop when the loss on them no longer falls; 0 trains on all rows to the
    last step. Below 200 rows none is kept back."""
    quantization: Literal["none", "4bit"] = "none"
    """`4bit` (QLoRA, Dettmers et al. 2023) holds the base model in NF4; needs a GPU and bitsandbytes."""
    seed: int = 0
