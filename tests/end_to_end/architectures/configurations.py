"""Small configurations of the architectures that `transformers` can build without a download.

A configuration is what the architecture's own class has by default, with the sizes of `SMALL` wherever it has such a
field, its parts (text, vision, audio) likewise; `OWN` says what single architectures need beside or instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Sizes = Mapping[str, Any]

SMALL: Sizes = {
    "vocab_size": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "hidden_size": 32, "d_model": 32, "n_embd": 32, "embed_dim": 32, "embedding_size": 32, "dim": 32, "emb_dim": 32,
    "intermediate_size": 64, "d_ff": 64, "ffn_dim": 64, "n_inner": 64, "hidden_dim": 64, "d_inner": 64,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "ffn_hidden_size": 64, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32, "block_ff_dim": 64,
    "num_hidden_layers": 2, "num_layers": 2, "n_layer": 2, "n_layers": 2, "encoder_layers": 1, "decoder_layers": 1,
    "num_encoder_layers": 1, "num_decoder_layers": 1,
    "num_attention_heads": 4, "num_heads": 4, "n_head": 4, "n_heads": 4, "num_key_value_heads": 2, "num_kv_heads": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "head_dim": 8, "d_kv": 8,
    "max_position_embeddings": 64, "n_positions": 64, "n_ctx": 64, "max_seq_len": 64,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8, "v_head_dim": 8, "sliding_window": 16,
    "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8,
    "state_size": 8, "conv_kernel": 4, "chunk_size": 8, "time_step_rank": 4, "mamba_dt_rank": 4, "mamba_d_ssm": 64,
    "image_size": 32, "patch_size": 8, "num_labels": 5, "use_cache": False, "depths": [1, 1], "window_size": 4,
    "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "type_vocab_size": 2, "hidden_act": None, "num_mel_bins": 16, "max_source_positions": 32,
}  # fmt: skip
"""None keeps what the class has."""

IMAGES_IN_STAGES = {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}
OWN: Mapping[str, Sizes] = {
    "bamba": {"attn_layer_indices": [1], "mamba_expand": 2},
    "falcon_h1": {"mamba_expand": 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 2, "expert_layer_offset": 1,
        "use_mamba_kernels": False},
    "mamba": {"expand": 2},
    "mamba2": {"num_heads": 4, "head_dim": 16, "expand": 2, "n_groups": 1, "state_size": 8},
    "lfm2": {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"], "mamba_expand": 2},
    "dots1": {"head_dim": 8, "n_shared_experts": 1, "sliding_window": None, "layer_types": ["full_attention",
        "full_attention"]},
    "deepseek_v3": {"num_key_value_heads": 4, "head_dim": None},
    "deepseek_v2": {"num_key_value_heads": 4, "head_dim": None},
    "gptj": {"rotary_dim": 4},
    "codegen": {"rotary_dim": 4},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "resnet": {**IMAGES_IN_STAGES, "layer_type": "basic"},
    "regnet": {**IMAGES_IN_STAGES, "groups_width": 4},
    "convnext": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "patch_size": 4},
    "convnextv2": {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "patch_size": 4},
    "bit": {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "num_groups": 4,
        "image_size": None},
    "swin": {"embed_dim": 16, "num_heads": [2, 4], "patch_size": 4},
    "swinv2": {"embed_dim": 16, "num_heads": [2, 4], "patch_size": 4},
    "donut-swin": {"embed_dim": 16, "num_heads": [2, 4], "patch_size": 4},
    "swin2sr": {"embed_dim": 16, "num_heads": [2, 2], "depths": [1, 1], "patch_size": 1, "window_size": 4},
    "focalnet": {"embed_dim": 16, "hidden_sizes": [16, 32], "patch_size": 4},
    "yolos": {"image_size": [32, 32]}, "funnel": {"num_hidden_layers": None, "block_sizes": [1, 1, 1]},
    "prophetnet": {"num_hidden_layers": None}, "xlnet": {"max_position_embeddings": None},
    "hiera": {"embed_dim": 16, "patch_size": [7, 7], "image_size": [32, 32], "patch_stride": [4, 4], "depths": [1,
        1, 1, 1], "num_heads": [1, 1, 2, 2]},
    "segformer": {"hidden_sizes": [8, 16, 16, 32], "num_attention_heads": [1, 2, 2, 4], "depths": [1, 1, 1, 1],
        "decoder_hidden_size": 16, "num_layers": None},
    "pvt": {"hidden_sizes": [8, 16, 16, 32], "num_attention_heads": [1, 2, 2, 4], "depths": [1, 1, 1, 1],
        "image_size": 64},
    "pvt_v2": {"hidden_sizes": [8, 16, 16, 32], "num_attention_heads": [1, 2, 2, 4], "depths": [1, 1, 1, 1],
        "image_size": 64},
    "poolformer": {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "patch_size": None},
    "mobilenet_v1": {"depth_multiplier": 0.25, "image_size": 64},
    "mobilenet_v2": {"depth_multiplier": 0.35, "image_size": 64},
    "mobilevit": {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 64],
        "patch_size": 2},
    "mobilevitv2": {"image_size": 64, "patch_size": 2},
    "efficientnet": {"image_size": 64, "width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320},
    "levit": {"image_size": 64, "patch_size": None, "hidden_sizes": [16, 32, 48], "num_attention_heads": [1, 2, 3],
        "depths": [1, 1, 1], "key_dim": [8, 8, 8]},
    "cvt": {"embed_dim": [8, 16, 32], "num_heads": [1, 2, 4], "depth": [1, 1, 1], "patch_size": None},
    "swiftformer": {"image_size": 64, "embed_dims": [8, 16, 24, 32], "depths": [1, 1, 1, 1]},
    "dpt": {"backbone_out_indices": [0, 0, 1, 1], "neck_hidden_sizes": [8, 16, 16, 32], "fusion_hidden_size": 16,
        "is_hybrid": False},
    "univnet": {"model_hidden_channels": 8, "resblock_stride_sizes": [2, 2]},
    "encodec": {"num_filters": 4, "codebook_size": 16, "codebook_dim": 16, "hidden_size": 16},
    "wav2vec2": {"conv_dim": [8, 8, 8], "conv_kernel": [10, 3, 3], "conv_stride": [5, 2, 2],
        "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "mobilebert": {"intra_bottleneck_size": 32, "true_hidden_size": 32},
    "openai-gpt": {}, "longformer": {"attention_window": 4}, "led": {"attention_window": 4},
    "big_bird": {"attention_type": "original_full"}, "layoutlmv2": None, "gpt_oss": {"head_dim": 8},
    "squeezebert": {"q_groups": 1, "k_groups": 1, "v_groups": 1},
}  # fmt: skip
"""None: it is left out."""
for _name in ("hubert", "unispeech", "unispeech-sat", "wavlm", "data2vec-audio", "wav2vec2-conformer", "sew", "sew-d"):
    OWN = {**OWN, _name: OWN["wav2vec2"]}


def configuration(model_type: str) -> Any:
    """Return the small configuration of an architecture; raise what the class raises if it cannot be built so."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = CONFIG_MAPPING[model_type]
    own = OWN.get(model_type, {})
    if own is None:
        raise NotImplementedError(f"'{model_type}' has no small configuration here")
    sizes = {**SMALL, **own}
    config = _small(kind, sizes, dict(own))
    for part in (config, *(getattr(config, name, None) for name in getattr(config, "sub_configs", {}))):
        if part is not None:
            part._experts_implementation = "batched_mm"  # the exporter knows no grouped product
    return config


def _small(kind: Any, sizes: Sizes, own: Sizes) -> Any:
    plain, other_names = kind(), getattr(kind, "attribute_map", {})
    wanted = {other_names.get(name, name): value for name, value in sizes.items()}
    wanted |= {other_names.get(name, name): value for name, value in own.items()}
    if "layer_types" not in own and getattr(plain, "layer_types", None):
        wanted[other_names.get("layer_types", "layer_types")] = list(plain.layer_types)[-2:]
    fields = {name: value for name, value in wanted.items() if value is not None and _takes(plain, name)}
    for name, value in vars(plain).items():
        if name.endswith("_config") and hasattr(value, "to_dict") and name in getattr(kind, "sub_configs", {}):
            fields[name] = _small(type(value), SMALL, {}).to_dict()
        elif isinstance(value, list) and name in fields and not isinstance(fields[name], list):
            fields[name] = [fields[name]] * len(value)
    return kind(**fields)


def _takes(plain: Any, name: str) -> bool:
    """Whether a configuration has a field that may be set."""
    attribute = getattr(type(plain), name, None)
    return hasattr(plain, name) and not (isinstance(attribute, property) and attribute.fset is None)
