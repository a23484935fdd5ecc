"""Writes the small random models of package pretrained's tests, in the folders that transformers makes, and their logits.

    python3 golden.py [NAME...] (in this directory; needs transformers 5 and PyTorch; without names it writes all)
    python3 golden.py --check   (reads the folders under written/, which the tests' -update writes, and compares)

Each folder holds config.json, model.safetensors or its shards, and golden.json: token ids, the logits that transformers
computes for them in float32, the loss of predicting each token from those before it, and the norm of the loss's gradient
by each parameter. Weights are drawn wide enough that every part of a model shows in the logits.
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers as tf

torch.set_num_threads(1)
here = pathlib.Path(__file__).parent

# transformers passes over this field, which the code that MPTs are published with reads: so does what is computed here.
slopes = tf.models.mpt.modeling_mpt.build_mpt_alibi_tensor
tf.MptModel.build_mpt_alibi_tensor = lambda model, heads, length, device=None: slopes(heads, length, model.config.attn_config.alibi_bias_max, device)

tokens = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [11, 23, 17, 0, 42, 8, 30, 2, 1, 7, 19]]
small = dict(
    vocab_size=48, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
    max_position_embeddings=32, bos_token_id=1, eos_token_id=2, pad_token_id=None, initializer_range=0.3,
)
grouped = dict(small, num_key_value_heads=2)
heads = dict(
    vocab_size=48, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32, bos_token_id=1, eos_token_id=2,
    ffn_hidden_size=20, initializer_range=0.3,
)
positioned = dict(
    vocab_size=48, hidden_size=24, ffn_dim=20, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16, bos_token_id=1, eos_token_id=2,
    pad_token_id=None, dropout=0.0, init_std=0.3)
llama3 = dict(rope_type="llama3", rope_theta=100.0, factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
longrope = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1], long_factor=[2.0, 3.0])

models = {
    "gpt2": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(
        vocab_size=48, n_positions=16, n_embd=24, n_layer=2, n_head=3, bos_token_id=1, eos_token_id=1, initializer_range=0.3)),
    "llama2": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**small, attention_bias=True, mlp_bias=True)),
    "llama3": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**grouped, tie_word_embeddings=True, rope_parameters=llama3)),
    "mistral": lambda: tf.MistralForCausalLM(tf.MistralConfig(**grouped, sliding_window=4, head_dim=8)),
    "qwen2": lambda: tf.Qwen2ForCausalLM(tf.Qwen2Config(
        **grouped, tie_word_embeddings=True, use_sliding_window=True, sliding_window=3, max_window_layers=1, rope_parameters=yarn)),
    "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**grouped, head_dim=10)),
    "gemma2": lambda: tf.Gemma2ForCausalLM(tf.Gemma2Config(
        **grouped, head_dim=8, sliding_window=4, query_pre_attn_scalar=16, attn_logit_softcapping=2.0, final_logit_softcapping=3.0)),
    "gemma3": lambda: tf.Gemma3ForCausalLM(tf.Gemma3TextConfig(
        **grouped, head_dim=8, sliding_window=4, query_pre_attn_scalar=16, layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
    "phi3": lambda: tf.Phi3ForCausalLM(tf.Phi3Config(
        **dict(grouped, max_position_embeddings=64), original_max_position_embeddings=32, sliding_window=5,
        rope_parameters=dict(longrope, partial_rotary_factor=0.7))),
    "olmo2": lambda: tf.Olmo2ForCausalLM(tf.Olmo2Config(**grouped)),
    "smollm3": lambda: tf.SmolLM3ForCausalLM(tf.SmolLM3Config(**grouped, no_rope_layers=[1, 0])),
    "llama-longrope": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**grouped, rope_parameters=dict(
        longrope, short_factor=[1.0, 1.1, 1.2], long_factor=[2.0, 3.0, 4.0], original_max_position_embeddings=8))),
    "opt": lambda: tf.OPTForCausalLM(tf.OPTConfig(**positioned)),
    "opt-post": lambda: tf.OPTForCausalLM(tf.OPTConfig(**positioned, do_layer_norm_before=False, enable_bias=False, tie_word_embeddings=False)),
    "gemma": lambda: tf.GemmaForCausalLM(tf.GemmaConfig(**grouped, head_dim=8)),
    "olmo": lambda: tf.OlmoForCausalLM(tf.OlmoConfig(**grouped)),
    "olmo3": lambda: tf.Olmo3ForCausalLM(tf.Olmo3Config(
        **grouped, sliding_window=4, layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"full_attention": yarn, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
    "granite": lambda: tf.GraniteForCausalLM(tf.GraniteConfig(
        **grouped, attention_bias=True, embedding_multiplier=3.0, logits_scaling=2.0, residual_multiplier=0.4, attention_multiplier=0.3)),
    "cohere": lambda: tf.CohereForCausalLM(tf.CohereConfig(**grouped, logit_scale=0.5, attention_bias=True)),
    "cohere2": lambda: tf.Cohere2ForCausalLM(tf.Cohere2Config(
        **grouped, logit_scale=0.25, sliding_window=4, layer_types=["sliding_attention", "full_attention"])),
    "glm": lambda: tf.GlmForCausalLM(tf.GlmConfig(**grouped, head_dim=8)),
    "glm4": lambda: tf.Glm4ForCausalLM(tf.Glm4Config(**grouped, head_dim=8)),
    "stablelm": lambda: tf.StableLmForCausalLM(tf.StableLmConfig(**grouped, use_qkv_bias=True, partial_rotary_factor=0.67)),
    "stablelm-parallel": lambda: tf.StableLmForCausalLM(tf.StableLmConfig(**grouped, use_parallel_residual=True, partial_rotary_factor=0.34)),
    "starcoder2": lambda: tf.Starcoder2ForCausalLM(tf.Starcoder2Config(**grouped, sliding_window=4)),
    "phi": lambda: tf.PhiForCausalLM(tf.PhiConfig(**grouped, partial_rotary_factor=0.67)),
    "gpt_neox": lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**small, rotary_pct=0.67)),
    "gpt_neox-serial": lambda: tf.GPTNeoXForCausalLM(tf.GPTNeoXConfig(**small, rotary_pct=1.0, use_parallel_residual=False, attention_bias=False)),
    "gptj": lambda: tf.GPTJForCausalLM(tf.GPTJConfig(
        vocab_size=48, n_positions=16, n_embd=24, n_layer=2, n_head=3, n_inner=20, rotary_dim=6, bos_token_id=1, eos_token_id=1, initializer_range=0.3)),
    "falcon": lambda: tf.FalconForCausalLM(tf.FalconConfig(**heads, multi_query=True)),
    "falcon-groups": lambda: tf.FalconForCausalLM(tf.FalconConfig(**heads, new_decoder_architecture=True, num_kv_heads=2, bias=True)),
    "falcon-alibi": lambda: tf.FalconForCausalLM(tf.FalconConfig(**heads, multi_query=False, parallel_attn=False, alibi=True, bias=True)),
    "bloom": lambda: tf.BloomForCausalLM(tf.BloomConfig(
        vocab_size=48, hidden_size=24, n_layer=2, n_head=6, bos_token_id=1, eos_token_id=2, initializer_range=0.3)),
    "mpt": lambda: tf.MptForCausalLM(tf.MptConfig(
        vocab_size=48, d_model=24, n_layers=2, n_heads=6, max_seq_len=32, initializer_range=0.3)),
}
mixture = dict(grouped, num_experts_per_tok=2)
models |= {
    "mixtral": lambda: tf.MixtralForCausalLM(tf.MixtralConfig(**mixture, num_local_experts=5, sliding_window=4)),
    "qwen2_moe": lambda: tf.Qwen2MoeForCausalLM(tf.Qwen2MoeConfig(
        **mixture, num_experts=5, moe_intermediate_size=12, shared_expert_intermediate_size=14, output_router_logits=True, router_aux_loss_coef=0.3,
        use_sliding_window=True, sliding_window=3)),
    "qwen3_moe": lambda: tf.Qwen3MoeForCausalLM(tf.Qwen3MoeConfig(
        **mixture, num_experts=5, moe_intermediate_size=12, head_dim=8, norm_topk_prob=True, mlp_only_layers=[0])),
    "glm4_moe": lambda: tf.Glm4MoeForCausalLM(tf.Glm4MoeConfig(
        **mixture, n_routed_experts=6, moe_intermediate_size=12, head_dim=8, use_qk_norm=True, routed_scaling_factor=1.5, attention_bias=True)),
    "gpt_oss": lambda: tf.GptOssForCausalLM(tf.GptOssConfig(
        **dict(mixture, hidden_size=32, intermediate_size=32), num_local_experts=5, head_dim=8, sliding_window=4, swiglu_limit=1.5, attn_implementation="eager",
        rope_parameters=dict(yarn, truncate=False))),
    "olmoe": lambda: tf.OlmoeForCausalLM(tf.OlmoeConfig(**mixture, num_experts=5)),
}
latent = dict(
    small, num_key_value_heads=4, num_experts_per_tok=3, n_routed_experts=8, n_group=4, topk_group=2, moe_intermediate_size=12, first_k_dense_replace=1,
    kv_lora_rank=10, qk_rope_head_dim=6, qk_nope_head_dim=4, v_head_dim=7,
)
models |= {
    "deepseek_v2": lambda: tf.DeepseekV2ForCausalLM(tf.DeepseekV2Config(
        **latent, q_lora_rank=None, topk_method="group_limited_greedy", routed_scaling_factor=1.5, n_shared_experts=2,
        rope_parameters=dict(yarn, mscale=0.7, mscale_all_dim=0.5))),
    "deepseek_v2-greedy": lambda: tf.DeepseekV2ForCausalLM(tf.DeepseekV2Config(
        **dict(latent, n_group=1, topk_group=1), q_lora_rank=9, attention_bias=True, n_shared_experts=1)),
    "deepseek_v2-biased": lambda: tf.DeepseekV2ForCausalLM(tf.DeepseekV2Config(
        **dict(latent, n_group=1, topk_group=1), q_lora_rank=9, mlp_bias=True, n_shared_experts=1)),
    "deepseek_v3": lambda: tf.DeepseekV3ForCausalLM(tf.DeepseekV3Config(
        **latent, q_lora_rank=9, attention_bias=True, n_shared_experts=1, rope_parameters=dict(yarn, mscale=1.0, mscale_all_dim=1.0))),
    "deepseek_v3-halves": lambda: tf.DeepseekV3ForCausalLM(tf.DeepseekV3Config(
        **dict(latent, n_group=1, topk_group=1), q_lora_rank=None, rope_interleave=False, norm_topk_prob=False)),
}
shared = dict(
    vocab_size=48, n_positions=16, n_embd=24, n_layer=2, n_head=4, n_inner=20, bos_token_id=1, eos_token_id=1, initializer_range=0.3,
    resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
models |= {
    "opt-narrow": lambda: tf.OPTForCausalLM(tf.OPTConfig(**positioned, word_embed_proj_dim=10, do_layer_norm_before=False)),
    "opt-bare": lambda: tf.OPTForCausalLM(tf.OPTConfig(
        **positioned, word_embed_proj_dim=30, _remove_final_layer_norm=True, layer_norm_elementwise_affine=False, tie_word_embeddings=False)),
    "gpt2-untied": lambda: tf.GPT2LMHeadModel(tf.GPT2Config(
        vocab_size=48, n_positions=16, n_embd=24, n_layer=2, n_head=3, bos_token_id=1, eos_token_id=1, initializer_range=0.3,
        tie_word_embeddings=False, scale_attn_weights=False, scale_attn_by_inverse_layer_idx=True)),
    "olmo-clip": lambda: tf.OlmoForCausalLM(tf.OlmoConfig(**grouped, clip_qkv=1.0)),
    "olmoe-clip": lambda: tf.OlmoeForCausalLM(tf.OlmoeConfig(**mixture, num_experts=5, clip_qkv=1.0, hidden_act="gelu")),
    "mpt-clip": lambda: tf.MptForCausalLM(tf.MptConfig(
        vocab_size=48, d_model=24, n_layers=2, n_heads=6, max_seq_len=32, initializer_range=0.3, attn_config=dict(clip_qkv=1.0))),
    "phi-norms": lambda: tf.PhiForCausalLM(tf.PhiConfig(**grouped, partial_rotary_factor=0.67, qk_layernorm=True)),
    "stablelm-norms": lambda: tf.StableLmForCausalLM(tf.StableLmConfig(
        **grouped, use_parallel_residual=True, partial_rotary_factor=0.67, qk_layernorm=True)),
    "cohere-heads": lambda: tf.CohereForCausalLM(tf.CohereConfig(**dict(grouped, head_dim=10), logit_scale=0.5, use_qk_norm=True)),
    "cohere2-heads": lambda: tf.Cohere2ForCausalLM(tf.Cohere2Config(
        **dict(grouped, head_dim=4), layer_types=["sliding_attention", "full_attention"], sliding_window=4)),
    "cohere-norms": lambda: tf.CohereForCausalLM(tf.CohereConfig(**grouped, logit_scale=0.5, use_qk_norm=True)),
    "persimmon": lambda: tf.PersimmonForCausalLM(tf.PersimmonConfig(**small, partial_rotary_factor=0.67)),
    "mixtral-gelu": lambda: tf.MixtralForCausalLM(tf.MixtralConfig(**mixture, num_local_experts=5, hidden_act="gelu_pytorch_tanh")),
    "qwen2_moe-relu": lambda: tf.Qwen2MoeForCausalLM(tf.Qwen2MoeConfig(
        **mixture, num_experts=5, moe_intermediate_size=12, shared_expert_intermediate_size=14, hidden_act="relu")),
    "gpt_neo": lambda: tf.GPTNeoForCausalLM(tf.GPTNeoConfig(
        vocab_size=48, hidden_size=24, intermediate_size=20, num_layers=3, num_heads=4, attention_types=[[["global", "local"], 1], [["local"], 1]],
        window_size=4, max_position_embeddings=16, bos_token_id=1, eos_token_id=1, initializer_range=0.3)),
    "gpt_bigcode": lambda: tf.GPTBigCodeForCausalLM(tf.GPTBigCodeConfig(**shared)),
    "gpt_bigcode-heads": lambda: tf.GPTBigCodeForCausalLM(tf.GPTBigCodeConfig(
        **shared, multi_query=False, scale_attn_weights=False, tie_word_embeddings=False)),
    "arcee": lambda: tf.ArceeForCausalLM(tf.ArceeConfig(**grouped, mlp_bias=True)),
    "ernie4_5": lambda: tf.Ernie4_5ForCausalLM(tf.Ernie4_5Config(**grouped, head_dim=8, use_bias=True)),
    "seed_oss": lambda: tf.SeedOssForCausalLM(tf.SeedOssConfig(**grouped, head_dim=8)),
    "bloom-streams": lambda: tf.BloomForCausalLM(tf.BloomConfig(
        vocab_size=48, hidden_size=24, n_layer=2, n_head=6, bos_token_id=1, eos_token_id=2, initializer_range=0.3,
        apply_residual_connection_post_layernorm=True)),
    "mpt-steep": lambda: tf.MptForCausalLM(tf.MptConfig(
        vocab_size=48, d_model=24, n_layers=2, n_heads=6, max_seq_len=32, initializer_range=0.3, attn_config=dict(alibi_bias_max=16))),
}


def spread(model, seed):
    """Gives norms and biases, which start at one and zero, values that show, and all values that float16 and bfloat16 both have."""
    torch.manual_seed(seed)
    for name, p in model.named_parameters():
        if p.dim() == 1 or name.endswith(("q_norm.weight", "k_norm.weight")):
            p.data += 0.2 * torch.randn_like(p)
        # Rounding the model as a whole would round RoPE's frequencies as well.
        p.data = p.data.to(torch.float16).to(torch.bfloat16).float()
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            b.data += (0.2 * torch.randn_like(b)).to(torch.float16).to(torch.bfloat16).float()
    return model.eval()


def results(model):
    ids = torch.tensor(tokens)
    out = model(input_ids=ids, labels=ids)
    out.loss.backward()
    gradients = {}
    for name, p in model.named_parameters():
        for part, g in parts(model, name, p.grad.double()):
            gradients[part] = g.norm().item()
    if isinstance(model, tf.GPTNeoXForCausalLM):  # whose file has another name for it
        gradients["embed_out.weight"] = gradients.pop("lm_head.weight")
    return dict(tokens=tokens, logits=out.logits.detach().flatten().tolist(), loss=out.loss.item(), gradients=gradients)


def parts(model, name, gradient):
    """The tensors that a parameter is in a file: those of experts are one each."""
    if name.endswith("experts.gate_up_proj") and not isinstance(model, tf.GptOssForCausalLM):
        if isinstance(model, tf.MixtralForCausalLM):
            name = name.replace(".mlp.", ".block_sparse_moe.")
        gate, up = ("w1", "w3") if isinstance(model, tf.MixtralForCausalLM) else ("gate_proj", "up_proj")
        for e, g in enumerate(gradient):
            for part, half in zip((gate, up), g.chunk(2)):
                yield name.replace("gate_up_proj", f"{e}.{part}.weight"), half
    elif name.endswith("experts.down_proj") and not isinstance(model, tf.GptOssForCausalLM):
        mixtral = isinstance(model, tf.MixtralForCausalLM)
        for e, g in enumerate(gradient):
            yield (name.replace(".mlp.", ".block_sparse_moe.") if mixtral else name).replace("down_proj", f"{e}.{'w2' if mixtral else 'down_proj'}.weight"), g
    elif isinstance(model, tf.MixtralForCausalLM):
        yield name.replace(".mlp.", ".block_sparse_moe."), gradient
    else:
        yield name, gradient


def write(names):
    for seed, (name, make) in enumerate(models.items()):
        if names and name not in names:
            continue
        torch.manual_seed(seed)
        model = spread(make(), seed)
        save(name, model, results(model))
    if not names or "gemma3-images" in names:
        write_multimodal()
    if not names or "gpt_oss-mxfp4" in names:
        write_mxfp4()


def write_multimodal():
    """A Gemma 3 that sees images, and the logits of texts alone."""
    torch.manual_seed(7)
    text = dict(**grouped, head_dim=8, sliding_window=4, query_pre_attn_scalar=16, layer_types=["sliding_attention", "full_attention"])
    see = dict(hidden_size=4, intermediate_size=4, num_hidden_layers=1, num_attention_heads=1, image_size=4, patch_size=2, num_channels=1, vision_use_head=False)
    model = spread(tf.Gemma3ForConditionalGeneration(tf.Gemma3Config(text_config=text, vision_config=see, mm_tokens_per_image=4)), 7)
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(tokens)).logits
    save("gemma3-images", model, dict(tokens=tokens, logits=logits.flatten().tolist()))


def save(name, model, golden):
    folder = here / name
    shutil.rmtree(folder, ignore_errors=True)
    stored = {"llama3": torch.bfloat16, "mistral": torch.float16}.get(name, torch.float32)
    model.to(stored).save_pretrained(folder, max_shard_size="8KB" if name == "qwen3" else "1GB")
    (folder / "generation_config.json").unlink(missing_ok=True)
    golden["logits"] = [float(f"{x:.7g}") for x in golden["logits"]]
    (folder / "golden.json").write_text(json.dumps(golden))


def write_mxfp4():
    """gpt-oss with the weights of its experts in MXFP4, as it is published."""
    from safetensors.torch import load_file, save_file
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    torch.manual_seed(99)
    name = "gpt_oss-mxfp4"
    model = spread(models["gpt_oss"](), 99)
    packed = {}
    for layer, block in enumerate(model.model.layers):
        for weight in ("gate_up_proj", "down_proj"):
            p = getattr(block.mlp.experts, weight)
            experts, inner, outer = p.shape
            blocks = torch.randint(0, 256, (experts, outer, inner // 32, 16), dtype=torch.uint8)
            scales = torch.randint(123, 126, (experts, outer, inner // 32), dtype=torch.uint8)
            p.data = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16).float()
            base = f"model.layers.{layer}.mlp.experts.{weight}"
            packed |= {base + "_blocks": blocks, base + "_scales": scales}
    save(name, model, results(model))
    file, config = here / name / "model.safetensors", here / name / "config.json"
    tensors = {k: v for k, v in load_file(file).items() if k + "_blocks" not in packed}
    save_file(tensors | packed, file, metadata={"format": "pt"})
    fields = json.loads(config.read_text())
    fields["quantization_config"] = {"modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router"], "quant_method": "mxfp4"}
    config.write_text(json.dumps(fields, indent=2))


def check():
    for name in (n for n in models if n != "llama-longrope"):  # which the tests do not write
        ours = tf.AutoModelForCausalLM.from_pretrained(here / "written" / name, dtype=torch.float32)
        theirs = tf.AutoModelForCausalLM.from_pretrained(here / name, dtype=torch.float32)
        a, b = ours.state_dict(), theirs.state_dict()
        assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a), name
        with torch.no_grad():
            assert torch.equal(ours(torch.tensor(tokens)).logits, theirs(torch.tensor(tokens)).logits), name
        print(name, "is equal in", len(a), "tensors and in its logits")


if __name__ == "__main__":
    check() if "--check" in sys.argv else write(sys.argv[1:])
