"""Models of `transformers` by small configurations: those of PyTorch's `dynamo/huggingface.py`, and others.

Random weights, no network; answers, gradients and graph breaks beside eager PyTorch, and `generate` by both caches.
"""

from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'graft-compiler[torch]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from graft.torch.fallbacks import COUNTS  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
LLVM = {"backends": ["llvm"]}
WORDS = 97
ENCODER = {
    "vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64,
    "max_position_embeddings": 64,
}  # fmt: skip
PAIR = {
    "vocab_size": WORDS, "d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
GPT = {"vocab_size": WORDS, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
DISTILLED = {
    "vocab_size": WORDS, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64,
}  # fmt: skip
DECODER = {
    "vocab_size": WORDS, "d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64,
    "max_position_embeddings": 64,
}  # fmt: skip
SHARED = {**ENCODER, "num_key_value_heads": 2}
MODELS: dict[str, dict[str, object]] = {
    "AlbertForMaskedLM": {**ENCODER, "embedding_size": 16},
    "BartForCausalLM": PAIR,
    "BartForConditionalGeneration": PAIR,
    "BertForMaskedLM": ENCODER,
    "BertForQuestionAnswering": ENCODER,
    "BlenderbotForCausalLM": PAIR,
    "BlenderbotForConditionalGeneration": PAIR,
    "BloomForCausalLM": {"vocab_size": WORDS, "hidden_size": 32, "n_layer": 2, "n_head": 4},
    "DebertaV2ForMaskedLM": {
        **ENCODER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 16,
    },
    "DistilBertForMaskedLM": DISTILLED,
    "DistilBertForQuestionAnswering": DISTILLED,
    "ElectraForCausalLM": {**ENCODER, "embedding_size": 16, "is_decoder": True},
    "ElectraForQuestionAnswering": {**ENCODER, "embedding_size": 16},
    "FalconForCausalLM": ENCODER,
    "GPT2LMHeadModel": GPT,
    "GPTJForCausalLM": {**GPT, "rotary_dim": 4},
    "GPTNeoForCausalLM": {
        **ENCODER, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
    },
    "GPTNeoXForCausalLM": ENCODER,
    "GemmaForCausalLM": {**SHARED, "head_dim": 8},
    "LayoutLMForMaskedLM": ENCODER,
    "LlamaForCausalLM": SHARED,
    "M2M100ForConditionalGeneration": PAIR,
    "MBartForCausalLM": PAIR,
    "MBartForConditionalGeneration": PAIR,
    "MPNetForMaskedLM": ENCODER,
    "MegatronBertForCausalLM": {**ENCODER, "is_decoder": True},
    "MegatronBertForQuestionAnswering": ENCODER,
    "MistralForCausalLM": SHARED,
    "MobileBertForMaskedLM": {
        **ENCODER, "embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16,
    },
    "OPTForCausalLM": {**ENCODER, "ffn_dim": 64, "word_embed_proj_dim": 32},
    "PLBartForCausalLM": PAIR,
    "PLBartForConditionalGeneration": PAIR,
    "PegasusForCausalLM": PAIR,
    "PegasusForConditionalGeneration": PAIR,
    "PhiForCausalLM": ENCODER,
    "Qwen2ForCausalLM": SHARED,
    "RobertaForCausalLM": {**ENCODER, "is_decoder": True, "pad_token_id": 1},
    "RobertaForQuestionAnswering": {**ENCODER, "pad_token_id": 1},
    "T5ForConditionalGeneration": {
        "vocab_size": WORDS, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
        "decoder_start_token_id": 0,
    },
    "TrOCRForCausalLM": DECODER,
    "XGLMForCausalLM": {**ENCODER, "d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 64},
    "XLNetLMHeadModel": {"vocab_size": WORDS, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
}  # fmt: skip


def made(name):
    """Return a model without dropout, in evaluation, and the arguments of a call with a loss."""
    kind = getattr(transformers, name)
    config = kind.config_class(**MODELS[name])
    config.use_cache = False
    for setting, value in vars(config).items():
        if "drop" in setting and isinstance(value, float):
            setattr(config, setting, 0.0)
    model = kind(config).eval()
    model.loss_type = model.loss_type or "ForCausalLM"  # what it would warn of, in the middle of a graph
    for one in model.modules():
        if isinstance(one, torch.nn.Dropout):
            one.p = 0.0
    ids = torch.randint(3, WORDS, (2, 9))
    if "Question" in name:
        return model, {"input_ids": ids, "start_positions": ids[:, 0] % 9, "end_positions": ids[:, 1] % 9}
    return model, {"input_ids": ids, "labels": ids}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_computes_and_learns_as_in_pytorch_without_graph_breaks(name):
    model, given = made(name)
    torch._dynamo.utils.counters.clear()
    with torch.no_grad():
        expected = model(**given)
        found = torch.compile(model, backend="graft", options=LLVM)(**given)
    for one, other in zip(found.to_tuple()[:2], expected.to_tuple()[:2], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
    assert not torch._dynamo.utils.counters["graph_break"]
    other = copy.deepcopy(model).train()
    torch._dynamo.reset()
    torch.compile(model.train(), backend="graft", options=LLVM)(**given).loss.backward()
    other(**given).loss.backward()
    for (part, one), reference in zip(model.named_parameters(), other.parameters(), strict=True):
        assert (one.grad is None) == (reference.grad is None), part
        if reference.grad is not None:
            torch.testing.assert_close(one.grad, reference.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("cache", ["growing", "static"])
def test_generation_by_a_compiled_forward_gives_the_same_words(cache):
    heads = {"num_key_value_heads": 2}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**ENCODER, **heads)).eval()
    ids = torch.randint(3, WORDS, (2, 7))
    given = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(ids)}
    expected = model.generate(ids, **given)
    if cache == "static":
        given |= {"cache_implementation": "static", "disable_compile": True}  # the forward below is what is compiled
    COUNTS.clear()
    torch._dynamo.utils.counters.clear()
    model.forward = torch.compile(model.forward, backend="graft", options=LLVM)
    assert model.generate(ids, **given).equal(expected)
    assert not COUNTS
    assert not torch._dynamo.utils.counters["graph_break"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 3
