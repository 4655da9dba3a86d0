"""Trains small random models of 166 architectures with PyTorch and, as exported programs, with shardline.

    python tests/transformers/compare_architectures.py build/tools/shardline [--name PATTERN ...]
        [--layout "D P T" ...] [--limit SECONDS] [--markdown FILE]

An architecture is called "FAMILY KIND" or "FAMILY/VARIANT KIND", such as "mixtral causal" (see KINDS). A process of its
own exports the model in training mode, trains the program for ten steps of AdamW with PyTorch, and then with shardline
in each layout, in float64 on the same batches. Its JSON line has, per layout, the largest relative difference of the
losses, that of the first gradient norm, and the share of the products with weights that tensor parallelism splits; or
the message with which PyTorch does not export the model or shardline refuses the program. REASONS lists which
architectures do not train and why: the exit code is 1 if any other does not train, if its numbers differ, or if one of
these fails for another reason or trains. compare_exported.py compares fewer models in more respects. Needs the same
packages; written for transformers 5.
"""
import argparse
import inspect
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time
import types

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from torch.export import Dim
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from compare import BATCH, SEQUENCE, STEPS, distances, train_shardline
from compare_exported import (LEAST_SHARE, arguments_of, degrees_of, is_within, module_of, padded, settings_of,
                              share_of, split_of, train_rows)

WORDS, LABELS, ROWS = 263, 3, STEPS * BATCH
LEAST_WORD = 5  # the ids below it are special
HIDDEN, HEADS, WIDE = 48, 6, 80
# Sizes for the keys that a config has. A key whose default is a list has its size in OWN.
BASE = {
    **dict.fromkeys("hidden_size d_model n_embd emb_dim dim embedding_size embedding_dim word_embed_proj_dim "
                    "input_embedding_size output_embedding_size projection_size encoder_hidden_size "
                    "cross_attention_hidden_size".split(), HIDDEN),
    **dict.fromkeys("num_attention_heads n_head n_heads num_heads attention_heads encoder_attention_heads "
                    "decoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads "
                    "encoder_num_attention_heads decoder_num_attention_heads".split(), HEADS),
    **dict.fromkeys("num_key_value_heads num_kv_heads".split(), 2),
    **dict.fromkeys("num_hidden_layers n_layer n_layers num_layers decoder_layers num_decoder_layers num_blocks "
                    "decoder_num_hidden_layers".split(), 3),
    **dict.fromkeys("encoder_layers num_encoder_layers encoder_num_hidden_layers".split(), 2),
    **dict.fromkeys("intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim dff d_ff d_inner hidden_dim "
                    "ffn_hidden_size".split(), WIDE),
    **dict.fromkeys("moe_intermediate_size shared_expert_intermediate_size".split(), 28),
    **dict.fromkeys("head_dim d_head d_kv v_head_dim attention_head_size".split(), HIDDEN // HEADS),
    **dict.fromkeys("vocab_size n_words".split(), WORDS),
    **dict.fromkeys("max_position_embeddings n_positions n_ctx max_seq_len max_target_positions "
                    "max_encoder_position_embeddings max_decoder_position_embeddings".split(), 64),
    **dict.fromkeys("num_experts num_local_experts n_routed_experts moe_num_experts".split(), 6),
    **dict.fromkeys("num_experts_per_tok moe_k n_group".split(), 2), "topk_group": 1, "expert_capacity": 64,
    **dict.fromkeys("first_k_dense_replace num_dense_layers".split(), 1), "num_nextn_predict_layers": 0,
    "kv_lora_rank": 16, "q_lora_rank": 24, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "rotary_dim": 4,
    "sliding_window": 8, "local_attention": 16, "state_size": 8, "time_step_rank": 3, "chunk_size": 8, "n_groups": 2,
    "image_size": 16, "patch_size": 4, "num_mel_bins": 10, "mask_time_prob": 0.0, "apply_spec_augment": False,
    "pad_token_id": 0, "bos_token_id": 1, "cls_token_id": 1, "eos_token_id": 2, "sep_token_id": 2,
    "decoder_start_token_id": 2, "mask_token_id": 4,
}
RELATIVE = dict(relative_attention=True, pos_att_type=["p2c", "c2p"], position_biased_input=False, type_vocab_size=0)
PYRAMID = dict(depths=[1, 2], hidden_sizes=[18, 30])
STAGES = dict(PYRAMID, num_encoder_blocks=2, strides=[2, 2], num_attention_heads=[1, 3], mlp_ratios=[2, 2])
WINDOWS = dict(patch_size=2, embed_dim=24, depths=[1, 2], num_heads=[3, 6], window_size=4)
WAVES = dict(conv_dim=[18, 24], conv_kernel=[5, 3], conv_stride=[3, 2], num_feat_extract_layers=2,
             num_conv_pos_embeddings=5, num_conv_pos_embedding_groups=3, feat_extract_norm="layer",
             classifier_proj_size=15)
SQUEEZED = dict(WAVES, squeeze_factor=2)
SCALED = {"rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 32}
LATENT = dict(num_key_value_heads=HEADS, head_dim=4)  # head_dim is that of the rotated part
SPACES = dict(mamba_n_heads=6, mamba_d_head=16, mamba_d_state=8, mamba_d_conv=3, mamba_chunk_size=8)
# Keys of a family, and of its variant, in place of those of BASE.
OWN = {
    "afmoe": dict(num_shared_experts=1), "bamba": dict(SPACES, attn_layer_indices=[1]),
    "big_bird": dict(attention_type="original_full"), "bigbird_pegasus": dict(attention_type="original_full"),
    "big_bird/sparse": dict(attention_type="block_sparse", block_size=2, num_random_blocks=1),
    "codegen": dict(n_head=8, n_embd=64), "cohere/norms": dict(use_qk_norm=True),
    "dbrx": dict(attn_config=dict(kv_n_heads=2, clip_qkv=8.0, rope_theta=10000.0),
                 ffn_config=dict(ffn_hidden_size=28, moe_num_experts=6, moe_top_k=2)),
    "deepseek_v2": LATENT, "deepseek_v3": LATENT, "deepseek_v3/plain": dict(q_lora_rank=None),
    "ernie4_5_moe": dict(moe_layer_end_index=2), "exaone4": dict(sliding_window_pattern=2),
    "falcon_h1": dict(SPACES, mamba_d_ssm=96), "falcon_mamba": dict(intermediate_size=96),
    "gemma4_text": dict(vocab_size_per_layer_input=WORDS, hidden_size_per_layer_input=12, per_layer_config={}),
    "gemma4_text/moe": dict(enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=28),
    "gemma4_text/shared": dict(num_kv_shared_layers=1, use_double_wide_mlp=True, attention_k_eq_v=True,
                               final_logit_softcapping=30.0),
    "glm4_moe": dict(use_qk_norm=True), "granitemoehybrid": SPACES,
    "jamba": dict(mamba_d_state=8, mamba_dt_rank=3, attn_layer_period=3, attn_layer_offset=1),
    "lfm2": dict(block_multiple_of=4), "llama/biased": dict(attention_bias=True, mlp_bias=True),
    "llama/odd": dict(hidden_size=45, intermediate_size=77, num_attention_heads=5, num_key_value_heads=1, head_dim=10),
    "llama/yarn": dict(rope_parameters=dict(SCALED, rope_type="yarn")),
    "llama/llama3": dict(rope_parameters=dict(SCALED, rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0)),
    "mamba2": dict(num_heads=12, head_dim=8), "mpt": dict(expansion_ratio=2), "olmo/clipped": dict(clip_qkv=0.05),
    "opt/350m": dict(word_embed_proj_dim=24, do_layer_norm_before=False),
    "opt/plain": dict(layer_norm_elementwise_affine=False, enable_bias=False),
    "qwen3_next": dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
                       linear_conv_kernel_dim=3),
    "recurrent_gemma": dict(lru_width=HIDDEN, attention_window_size=8),
    "rwkv": dict(attention_hidden_size=HIDDEN), "smollm3": dict(no_rope_layers=[1, 0, 1], no_rope_layer_interval=2),
    "stablelm/norms": dict(qk_layernorm=True, use_parallel_residual=True),
    # encoders, and encoders with decoders
    "albert": dict(embedding_size=24),
    "canine": dict(num_hash_buckets=64, local_transformer_stride=4, downsampling_rate=2),
    "convbert": dict(embedding_size=24, head_ratio=2, conv_kernel_size=3), "deberta": RELATIVE,
    "deberta-v2": dict(RELATIVE, norm_rel_ebd="layer_norm", share_att_key=True, position_buckets=16),
    "electra": dict(embedding_size=24), "esm": dict(position_embedding_type="rotary", token_dropout=False),
    "esm/absolute": dict(position_embedding_type="absolute", emb_layer_norm_before=True, token_dropout=True),
    "eurobert": dict(num_key_value_heads=HEADS),
    "funnel": dict(block_sizes=[1, 1, 1]), "led": dict(attention_window=4),
    "lilt": dict(channel_shrink_ratio=2), "longformer": dict(attention_window=4),
    "longt5/local": dict(local_radius=3, encoder_attention_type="local"),
    "luke": dict(entity_vocab_size=11, entity_emb_size=12),
    "mobilebert": dict(embedding_size=16, intra_bottleneck_size=24, num_feedforward_networks=2),
    "modernbert": dict(global_attn_every_n_layers=2), "nllb-moe": dict(num_experts=4),
    "nystromformer": dict(num_landmarks=4, segment_means_seq_len=4),
    "pegasus_x": dict(num_global_tokens=4, block_size=4),
    "prophetnet": dict(ngram=2, num_buckets=8, relative_max_distance=16),
    "rembert": dict(input_embedding_size=24, output_embedding_size=36), "roformer": dict(embedding_size=24),
    "splinter": dict(question_token_id=3), "t5/gated": dict(feed_forward_proj="gated-gelu"),
    "xlnet": dict(summary_type="first"),
    "xmod": dict(languages=["en_XX"], default_language="en_XX"),
    "yoso": dict(use_expectation=True, num_hash=4, hash_code_len=3),
    "encoder-decoder": dict(vocab_size=WORDS, encoder=dict(model_type="bert"), decoder=dict(
        model_type="bert", is_decoder=True, add_cross_attention=True)),
    # images, sound and series
    "audio-spectrogram-transformer": dict(max_length=24, num_mel_bins=16, frequency_stride=4, time_stride=4),
    "beit/relative": dict(use_relative_position_bias=True, use_mean_pooling=True),
    "convnext": dict(PYRAMID, num_stages=2, patch_size=2), "convnextv2": dict(PYRAMID, num_stages=2, patch_size=2),
    "data2vec-audio": WAVES, "dinov2": dict(mlp_ratio=2), "dinov2_with_registers": dict(mlp_ratio=2), "hubert": WAVES,
    "levit": dict(image_size=32, hidden_sizes=[18, 24, 30], num_attention_heads=[1, 2, 3], depths=[1, 1, 1],
                  key_dim=[6, 6, 6], patch_size=16),
    "mobilevit": dict(image_size=32, hidden_sizes=[18, 24, 30], neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 48],
                      num_attention_heads=3, patch_size=2),
    "moonshine": dict(pad_token_id=0),
    "patchtst": dict(num_input_channels=3, context_length=24, patch_length=6, patch_stride=6, norm_type="layernorm",
                     num_targets=LABELS, use_cls_token=True, do_mask_input=False),
    "patchtst/batch-norm": dict(norm_type="batchnorm"),
    "poolformer": dict(hidden_sizes=[18, 24, 30, 36], depths=[1, 1, 1, 1], patch_sizes=[3, 3, 3, 3],
                       strides=[2, 2, 1, 1], padding=[1, 1, 1, 1]),
    "pvt_v2": dict(STAGES, patch_sizes=[3, 3], sr_ratios=[2, 1]),
    "regnet": dict(PYRAMID, embedding_size=12, groups_width=6),
    "resnet": dict(PYRAMID, embedding_size=12, layer_type="basic"),
    "segformer": dict(STAGES, patch_sizes=[3, 3], sr_ratios=[2, 1], decoder_hidden_size=20), "sew": SQUEEZED,
    "speech_to_text": dict(input_feat_per_channel=10, conv_channels=24, conv_kernel_sizes=[3, 3],
                           max_source_positions=64),
    "swin": WINDOWS, "swinv2": WINDOWS, "timesformer": dict(num_frames=4), "unispeech": WAVES, "unispeech-sat": WAVES,
    "videomae": dict(num_frames=4, tubelet_size=2), "vivit": dict(num_frames=4, tubelet_size=[2, 4, 4]),
    "vision-encoder-decoder": dict(encoder=dict(model_type="vit"), decoder=dict(
        model_type="bert", is_decoder=True, add_cross_attention=True)),
    "wav2vec2": WAVES, "wav2vec2/group": dict(feat_extract_norm="group"), "wav2vec2-conformer": WAVES, "wavlm": WAVES,
    "whisper": dict(max_source_positions=12, classifier_proj_size=15),
}
# By kind: what transformers calls the model (its Auto class, or the end of that), and the families.
KINDS = {
    "causal": ("CausalLM", """
        afmoe apertus arcee aria_text bamba bert bert-generation big_bird biogpt bitnet bloom codegen cohere
        cohere/norms cohere2 ctrl dbrx deepseek_v2 deepseek_v3 deepseek_v3/plain diffllama ernie4_5 ernie4_5_moe
        exaone4 falcon falcon_h1 falcon_mamba gemma gemma2 gemma3_text gemma4_text gemma4_text/moe
        gemma4_text/shared glm glm4 glm4_moe gpt_oss gptj granite granitemoe granitemoehybrid helium jamba
        jetmoe lfm2 llama/biased llama/llama3 llama/odd llama/yarn mamba mamba2 minimax_m2 mistral mixtral mpt
        nemotron olmo olmo/clipped olmo2 olmo3 olmoe openai-gpt opt/350m opt/plain persimmon phi phi3 phimoe
        qwen2_moe qwen3 qwen3_moe qwen3_next recurrent_gemma roberta rwkv seed_oss smollm3 stablelm
        stablelm/norms starcoder2 xglm xlstm"""),
    "classes": ("SequenceClassification", """
        albert bert big_bird bloom camembert canine convbert data2vec-text deberta distilbert electra ernie esm eurobert
        flaubert fnet funnel gpt2 ibert layoutlm lilt llama longformer luke megatron-bert mobilebert modernbert mpnet
        nystromformer opt qwen2 qwen3 rembert roberta roberta-prelayernorm roformer squeezebert xlm xlm-roberta-xl xlnet
        xmod yoso"""),
    "tags": ("TokenClassification", "bloom distilbert electra gemma2 gpt2 mpt roberta t5"),
    "answers": ("QuestionAnswering", "albert distilbert modernbert roberta splinter"),
    "masked": ("MaskedLM", """
        albert bert big_bird/sparse camembert deberta-v2 distilbert electra esm/absolute modernbert mpnet"""),
    "pairs": ("Seq2SeqLM", """
        bart bigbird_pegasus blenderbot blenderbot-small encoder-decoder led longt5/local m2m_100 marian mbart mt5
        mvp nllb-moe pegasus pegasus_x plbart prophetnet t5/gated t5gemma umt5"""),
    "images": ("ImageClassification", """
        beit beit/relative clip convnext convnextv2 data2vec-vision deit dinov2 dinov2_with_registers ijepa imagegpt
        levit mobilevit poolformer pvt_v2 regnet resnet segformer swin swinv2 vit_msn"""),
    "videos": ("VideoClassification", "timesformer videomae vivit"),
    "captions": ("ImageTextToText", "vision-encoder-decoder"),
    "sounds": ("AudioClassification", """
        audio-spectrogram-transformer data2vec-audio hubert sew unispeech unispeech-sat wav2vec2 wav2vec2-conformer
        wav2vec2/group wavlm whisper"""),
    "speech": ("SpeechSeq2Seq", "moonshine speech_to_text"),
    "series": ("PatchTSTForClassification", "patchtst patchtst/batch-norm"),
}
NAMES = [f"{family} {kind}" for kind, (_, families) in KINDS.items() for family in families.split()]
# For models that take tensors: the argument, and the sizes of an example. Those of ids are drawn from the words.
TENSORS = {
    "images": {"pixel_values": (3, 16, 16)}, "videos": {"pixel_values": (4, 3, 16, 16)},
    "captions": {"pixel_values": (3, 16, 16)}, "sounds": {"input_values": (120,)},
    "speech": {"input_features": (32, 10)}, "series": {"past_values": (24, 3)},
    "audio-spectrogram-transformer sounds": {"input_values": (24, 16)},
    "imagegpt images": {"input_ids": (20,)}, "levit images": {"pixel_values": (3, 32, 32)},
    "mobilevit images": {"pixel_values": (3, 32, 32)}, "moonshine speech": {"input_values": (2400,)},
    "whisper sounds": {"input_features": (10, 24)},
}
WRITING = ("captions", "speech")  # the labels are tokens
TARGET = 8  # the longest target of these, and the length if sizes are fixed
# Models that loop over tokens, or over chunks of them, in Python.
RECURRENT = "bamba falcon_h1 falcon_mamba granitemoehybrid jamba mamba mamba2 qwen3_next recurrent_gemma rwkv xlstm"
# The fixed length of texts whose models take no other, or whose results depend on the padding.
LENGTHS = {"big_bird/sparse masked": 36, "canine classes": 16, "longt5/local pairs": 12, "pegasus_x pairs": 12,
           **dict.fromkeys((f"{name} causal" for name in RECURRENT.split()), 8),
           **dict.fromkeys(("convbert classes", "deberta classes", "fnet classes", "funnel classes",
                            "nystromformer classes", "yoso classes"), 12)}
# The share that T has to split, if it is smaller than for other models.
SHARES = {"deberta classes": 0.85, "deberta-v2 masked": 0.85}
# Patterns of the messages of architectures that do not train.
REASONS = {
    "not exported: GuardOnDataDependentSymNode":
        "dbrx causal, ibert classes, longformer classes, led pairs, prophetnet pairs",
    "not exported: .* DynamicCache.* in output": "granitemoe causal",
    "failed: RuntimeError: .* deserializing": "phimoe causal",  # PyTorch does not open what it exported
    "refused: .* is a norm over the samples of a batch":
        "levit images, mobilevit images, regnet images, resnet images, patchtst/batch-norm series",
    "refused: .* changes the sizes of a tensor in place": "big_bird/sparse masked",
    "refused: .* does not look up its input_ids in a table":
        "canine classes",
    "refused: .* needs the value .* of an earlier one": "funnel classes",
    "refused: .* depends on padding after it": "mobilebert classes",
}
EXPECTED = {name: reason for reason, names in REASONS.items() for name in names.split(", ")}


def small_config(config_class, own, is_decoder):
    """Returns the keys of a small config without dropout."""
    auto = {key: part for key, part in own.items() if isinstance(part, dict) and "model_type" in part}
    known = {} if auto else config_class().to_dict()  # one with configs of any type has no default
    parts = {key: config_class.sub_configs[key] for key in config_class.sub_configs if isinstance(known.get(key), dict)}
    parts.update({key: CONFIG_MAPPING[part["model_type"]] for key, part in auto.items()})
    keys = {}
    for key, value in known.items():
        if re.search("drop|jitter", key) and isinstance(value, (int, float)) and not isinstance(value, bool):
            keys[key] = type(value)(0)
        elif key in ("layer_types", "mlp_layer_types") and isinstance(value, list):  # as many kinds as there are
            types_of_layer = list(dict.fromkeys(value))
            keys[key] = [types_of_layer[i % len(types_of_layer)] for i in range(BASE["num_hidden_layers"])]
        elif key in BASE and not isinstance(value, (dict, list)):
            keys[key] = BASE[key]
    if "is_decoder" in known:
        keys["is_decoder"] = is_decoder
    for key, part in parts.items():
        keys[key] = {**small_config(part, own.get(key, {}), False), "model_type": part.model_type}
    keys.update({key: value for key, value in own.items() if key not in parts})
    return keys


def make_model(family, kind):
    torch.manual_seed(1)
    config_class = CONFIG_MAPPING[family.split("/")[0]]
    own = {**OWN.get(family.split("/")[0], {}), **OWN.get(family, {})}
    config = config_class(**small_config(config_class, own, kind == "causal"))
    config.use_cache, config.architectures = False, []  # of several classes for images, the first
    config.num_labels, config.problem_type = 2 if kind == "answers" else LABELS, "single_label_classification"
    for key in ("pad_token_id", "eos_token_id", "decoder_start_token_id"):  # some configs have no such key of their own
        setattr(config, key, BASE[key])
    called = KINDS[kind][0]
    model = (getattr(transformers, called)(config) if hasattr(transformers, called) else
             getattr(transformers, f"AutoModelFor{called}").from_config(config)).float().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # some have no key in the config
    with torch.no_grad():
        for parameter in model.parameters():  # weights of 0 and 1 hide defects
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


class Samples:
    """The rows of an architecture, written to a file for shardline, and the model's arguments for some of them."""
    settings, fixed = (), ()  # of shardline's config; arguments of which only the batch is dynamic
    FIXED = ("input_ids", "attention_mask", "labels")  # of texts of one length

    def __init__(self, name, model, folder):
        self.kind, self.length = name.split()[1], LENGTHS.get(name)
        self.draw, self.takes = np.random.default_rng(5), inspect.signature(model.forward).parameters
        self.others = {"use_cache": False} if "use_cache" in self.takes else {}
        if self.kind in TENSORS:
            self.make_tensors(TENSORS.get(name, TENSORS[self.kind]), folder)
        elif self.kind == "causal":
            self.rows = self.draw.integers(LEAST_WORD, WORDS, (ROWS, self.length or SEQUENCE))
            self.rows.astype(np.uint16).tofile(os.path.join(folder, "tokens.bin"))
            if self.length:
                self.fixed, self.settings = self.FIXED, [f"data.sequence_length={self.length}"]
        else:
            self.make_texts(folder)

    def make_texts(self, folder):
        words = lambda count: self.draw.integers(LEAST_WORD, WORDS, count).tolist()
        number = lambda low, high: int(self.draw.integers(low, high))

        def labels_of(i, n):
            if self.kind == "pairs":
                return {"labels": words(TARGET if self.length else number(4, TARGET + 1))}
            if self.kind == "classes":
                return {"label": i % LABELS}
            if self.kind == "tags":
                return {"labels": self.draw.integers(LABELS, size=n).tolist()}
            if self.kind == "masked":
                return {"labels": [word if place % 2 else -100 for place, word in enumerate(words(n))]}
            return dict(zip(("start_positions", "end_positions"), sorted(self.draw.integers(1, n - 1, 2).tolist())))

        self.rows = []
        for i in range(ROWS):
            # the softmax of answers includes padding, so these have one length in a batch
            n = self.length or (6 + i // BATCH if self.kind == "answers" else number(TARGET + 1, 20))
            self.rows.append({"input_ids": words(n), **labels_of(i, n)})
        path = os.path.join(folder, "rows.jsonl")
        with open(path, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in self.rows)
        # masked-lm would mask the words itself
        task = {"classes": "sequence-classification", "answers": "question-answering", "pairs": "seq2seq-lm"}.get(
            self.kind, "token-classification")
        self.settings = [f"task={task}", f"data.train={path}", "data.format=jsonl", "data.tokenizer=bytes",
                         f"data.sequence_length={(self.length or 24) + (TARGET if self.kind == 'pairs' else 0)}"]
        if self.kind == "pairs":
            self.settings.append(f"data.max_target_length={TARGET}")
        if self.kind in ("tags", "masked"):
            self.settings.append(f'model.config={{"num_labels": {WORDS if self.kind == "masked" else LABELS}}}')
        if self.length:
            self.fixed = self.FIXED

    def make_tensors(self, sizes, folder):
        draw = torch.Generator().manual_seed(5)
        self.label = next((key for key in ("labels", "target_values") if key in self.takes), "labels")
        self.columns = {key: torch.randint(LEAST_WORD, WORDS, (ROWS, *size), generator=draw) if key == "input_ids" else
                        torch.randn(ROWS, *size, generator=draw) for key, size in sizes.items()}
        self.fixed = tuple(self.columns)
        labels = torch.arange(ROWS) % LABELS
        if self.kind in WRITING:
            labels = torch.randint(LEAST_WORD, WORDS, (ROWS, TARGET), generator=draw)
            for row in labels:
                row[torch.randint(2, TARGET + 1, (), generator=draw):] = -100
        path = os.path.join(folder, "rows.safetensors")
        save_file({**{f"column_{key}": value for key, value in self.columns.items()}, "labels": labels}, path)
        inputs = {**{key: f"column_{key}" for key in self.columns}, self.label: "labels"}
        self.columns[self.label] = labels
        self.rows = torch.arange(ROWS)
        self.settings = [f"model.inputs={json.dumps(inputs)}", f"data.train={path}", "data.format=auto",
                         "data.sequence_length=1024", *(
                             ["task=seq2seq-lm", "data.tokenizer=bytes", f"data.max_target_length={TARGET}"]
                             if self.kind in WRITING else ["task=sequence-classification"])]

    def arguments(self, rows):
        if self.kind in TENSORS:
            return {key: value[rows] for key, value in self.columns.items()}
        if self.kind == "causal":
            ids = torch.from_numpy(rows)
            found = dict(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids.clone())
        elif self.kind in ("pairs", "tags", "masked"):
            found = arguments_of(rows, False)
        else:
            ids = [row["input_ids"] for row in rows]
            found = dict(input_ids=padded(ids, 0), attention_mask=padded([[1] * len(row) for row in ids], 0))
            for key in rows[0].keys() - {"input_ids"}:
                found["labels" if key == "label" else key] = torch.tensor([row[key] for row in rows])
        return {key: value for key, value in found.items() if key in self.takes}

    def run(self, module, rows):
        return module(**{key: value.double() if value.is_floating_point() else value
                         for key, value in self.arguments(rows).items()}, **self.others)


def export(model, samples, path):
    arguments = samples.arguments(samples.rows[:3])
    sizes = {key: {i: Dim.AUTO for i in range(1 if key in samples.fixed else value.dim())}
             for key, value in arguments.items()}
    program = torch.export.export(model, (), {**arguments, **samples.others}, strict=False,
                                  dynamic_shapes={**sizes, **dict.fromkeys(samples.others)})
    torch.export.save(program, path)


def compare(program, name, layouts, folder):
    """Returns the results of the layouts and, if any does not train as in PyTorch, the first reason ("why")."""
    model = make_model(*name.split())
    samples = Samples(name, model, folder)
    path = os.path.join(folder, "program.pt2")
    try:
        export(model, samples, path)
    except Exception as error:
        return {"why": f"not exported: {type(error).__name__}: {' '.join(str(error).split())[:400]}"}
    reference = train_rows(module_of(path, torch.float64), [samples.rows[i:i + BATCH] for i in range(0, ROWS, BATCH)],
                           samples.run)
    row = {"layouts": {}}
    for layout in layouts:
        out = os.path.join(folder, "out")
        settings = [*settings_of(path, "float64", layout, "memory"), *samples.settings]
        try:
            ours = train_shardline(program, folder, degrees_of(layout), out, "adamw_torch_fused", settings, False)
        except SystemExit as stop:
            lines = str(stop.code).replace(folder + os.sep, "").strip().splitlines()
            error = next((line for line in reversed(lines) if "error: " in line), lines[-1])
            row["layouts"][layout] = {"error": error}
            row.setdefault("why", f"refused: {error}")
            if layout == layouts[0]:
                break
            continue
        numbers = {"dtype": "float64", **distances(ours, reference), "split": split_of(out)}
        row["layouts"][layout] = {"loss": numbers["loss"], "first_norm": numbers["first_norm"],
                                  **({"share": share_of(numbers)} if degrees_of(layout)[2] > 1 else {})}
        if not is_within(numbers, SHARES.get(name, LEAST_SHARE)):
            row.setdefault("why", f"differs: in layout {layout}")
        shutil.rmtree(out)
    return row


def compare_in_process(program, name, layouts, limit):
    """compare in a process of its own, which has the limit's seconds and may run out of memory."""
    receiving, sending = multiprocessing.Pipe(duplex=False)

    def work():
        os.setsid()  # so that the ranks end with it
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1), os.dup2(nothing, 2)  # where torch prints whole graphs
        try:
            row = compare(program, name, layouts, folder)
        except Exception as error:
            row = {"why": f"failed: {type(error).__name__}: {' '.join(str(error).split())[:400]}"}
        sending.send(row)

    with tempfile.TemporaryDirectory() as folder:
        process = multiprocessing.get_context("fork").Process(target=work)
        begin = time.time()
        process.start()
        sending.close()
        row = {"why": f"failed: took longer than {limit} seconds"}
        if receiving.poll(limit):
            try:
                row = receiving.recv()
            except EOFError:
                process.join()
                row = {"why": f"failed: its process ended with {process.exitcode}"}
        else:
            os.killpg(process.pid, signal.SIGKILL)
        process.join()
    why, expected = row.get("why", ""), EXPECTED.get(name)
    row["seconds"] = round(time.time() - begin, 1)
    row["ok"] = bool(re.match(expected, why)) if expected else not why
    return row


def table_of(results, layouts):
    """The share that T divides and the differences of losses, and then why architectures do not train."""
    lines = [f"| architecture | divided over T | {' | '.join(layouts)} |", "| --- | ---: |" + " ---: |" * len(layouts)]
    for name, row in results.items():
        cells = [row.get("layouts", {}).get(layout, {}) for layout in layouts]
        shares = [f"{100 * cell['share']:.1f} %" for cell in cells if cell.get("share") is not None]
        numbers = [f"{cell['loss']:.1e}" if "loss" in cell else "" for cell in cells]
        lines.append(f"| {name} | " + " | ".join([min(shares, default=""), *numbers]) + " |")
    reasons = [f"- {name}: {row['why']}" for name, row in results.items() if "why" in row]
    return "\n".join([*lines, "", *reasons]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--name", nargs="*", default=[""], help="regular expressions that names contain")
    parser.add_argument("--layout", nargs="*", default=["1 1 1", "1 2 1", "1 1 2", "2 1 1"])
    parser.add_argument("--limit", type=float, default=600, help="seconds per architecture")
    parser.add_argument("--markdown", type=pathlib.Path, help="file for a table of the results")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    results = {}
    for name in NAMES:
        if any(re.search(pattern, name) for pattern in args.name):
            results[name] = compare_in_process(args.program, name, args.layout, args.limit)
            print(json.dumps({"architecture": name, **results[name]}), flush=True)
    if args.markdown:
        args.markdown.write_text(table_of(results, args.layout))
    count = lambda start: sum(row.get("why", "trains").startswith(start) for row in results.values())
    wrong = [name for name, row in results.items() if not row["ok"]]
    print(f"{len(results)} architectures: {count('trains')} train, PyTorch does not export {count('not exported')}, "
          f"shardline refuses {count('refused')}, {count('differs') + count('failed')} differ or fail; "
          f"not as expected: {', '.join(wrong) or 'none'}")
    sys.exit(1 if wrong or not results else 0)


if __name__ == "__main__":
    main()
