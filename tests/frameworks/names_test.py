"""what collate makes is what current models and kernels take, and no sequence sees another."""
import inspect

import pytest
import torch
from transformers import DataCollatorWithFlattening, LlamaConfig, LlamaForCausalLM
from transformers.modeling_flash_attention_utils import FlashAttentionKwargs

from pliant.torch import collate

SAMPLES = [{"input_ids": [5, 6, 7, 9]}, {"input_ids": [8, 2]}, {"input_ids": [9, 10, 11]}]
LABELLED = [{**sample, "labels": [token + 1 for token in sample["input_ids"]]} for sample in SAMPLES]


@pytest.mark.parametrize("samples", [SAMPLES, LABELLED, SAMPLES[:1]])
def test_it_equals_data_collator_with_flattening_value_by_value(samples):
    made = collate(samples)
    expected = DataCollatorWithFlattening(return_flash_attn_kwargs=True)([dict(sample) for sample in samples])
    assert set(made) == set(expected)
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            assert made[name].dtype == value.dtype and torch.equal(made[name], value), name
        else:
            assert made[name] == value and type(made[name]) is type(value), name


def test_the_lengths_have_the_names_of_transformers():
    assert set(collate(SAMPLES)) - {"input_ids", "labels", "position_ids"} == set(FlashAttentionKwargs.__annotations__) & set(collate(SAMPLES))
    assert {"cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"} <= set(FlashAttentionKwargs.__annotations__)


def model_of(attention):
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
                         num_key_value_heads=2, max_position_embeddings=64, attn_implementation=attention)
    return LlamaForCausalLM(config).double().eval()


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("style", ["transformers", "sdpa"])
def test_a_model_of_transformers_sees_each_sequence_alone(attention, style):
    model = model_of(attention)
    batch = collate(SAMPLES, style=style)
    if style == "sdpa" and attention == "eager":  # which adds its mask
        batch["attention_mask"] = torch.zeros(batch["attention_mask"].shape, dtype=torch.float64).masked_fill(
            ~batch["attention_mask"], float("-inf"))
    with torch.no_grad():
        batch.pop("labels")
        together = model(**batch, use_cache=False).logits[0]  # with a cache Transformers does not look at position_ids
        alone = torch.cat([model(input_ids=torch.tensor([sample["input_ids"]])).logits[0] for sample in SAMPLES])
    assert torch.allclose(together, alone, atol=1e-9)


def test_the_mask_is_that_of_scaled_dot_product_attention():
    batch = collate(SAMPLES, style="sdpa", multiple=4)
    torch.manual_seed(1)
    x = torch.randn(64, 8, dtype=torch.float64)[batch["input_ids"]][:, None]
    together = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=batch["attention_mask"])[0, 0]
    assert not together.isnan().any()
    at = 0
    for sample in SAMPLES:
        own = x[..., at : at + len(sample["input_ids"]), :]
        alone = torch.nn.functional.scaled_dot_product_attention(own, own, own, is_causal=True)[0, 0]
        assert torch.allclose(together[at : at + len(alone)], alone)
        at += len(alone)


def test_the_borders_are_those_of_variable_length_attention():
    batch = collate(SAMPLES, style="flash_attn")
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        pytest.skip("this torch has no varlen_attn")
    names = list(inspect.signature(varlen_attn).parameters)
    assert names[:7] == ["query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k"]
    assert batch["cu_seqlens"].dtype == torch.int32 and isinstance(batch["max_seqlen"], int)
