package pretrained

import (
	"strings"
	"testing"
)

// publishedFurther are configs with fields and values that the others lack, written down from
// memory as those are.
var publishedFurther = []publishedConfig{
	{"HuggingFaceTB/SmolLM2-1.7B-Instruct", 1_711_376_384, `{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
		"bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
		"max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 24,
		"num_key_value_heads": 32, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 130000,
		"tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers.js_config": {"kv_cache_dtype": {"fp16": "float16", "q4f16": "float16"}},
		"transformers_version": "4.42.3", "use_cache": true, "vocab_size": 49152}`},
	{"Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304, `{"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
		"eos_token_id": 151645, "hidden_act": "silu", "hidden_size": 1536, "initializer_range": 0.02, "intermediate_size": 8960,
		"max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 12, "num_hidden_layers": 28,
		"num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
		"torch_dtype": "bfloat16", "transformers_version": "4.43.1", "use_cache": true, "use_sliding_window": false, "vocab_size": 151936}`},
	{"codellama/CodeLlama-7b-hf", 6_738_546_688, `{"architectures": ["LlamaForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
		"hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 16384, "model_type": "llama",
		"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
		"rope_scaling": null, "rope_theta": 1000000, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
		"transformers_version": "4.33.0.dev0", "use_cache": true, "vocab_size": 32016}`},
	{"mistralai/Mixtral-8x22B-v0.1", 140_620_634_112, `{"architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
		"eos_token_id": 2, "hidden_act": "silu", "hidden_size": 6144, "initializer_range": 0.02, "intermediate_size": 16384,
		"max_position_embeddings": 65536, "model_type": "mixtral", "num_attention_heads": 48, "num_experts_per_tok": 2, "num_hidden_layers": 56,
		"num_key_value_heads": 8, "num_local_experts": 8, "output_router_logits": false, "rms_norm_eps": 1e-05, "rope_theta": 1000000,
		"router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "sliding_window": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
		"transformers_version": "4.40.0.dev0", "use_cache": true, "vocab_size": 32000}`},
	{"google/gemma-7b", 8_537_680_896, `{"architectures": ["GemmaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 2,
		"eos_token_id": 1, "head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": null, "hidden_size": 3072,
		"initializer_range": 0.02, "intermediate_size": 24576, "max_position_embeddings": 8192, "model_type": "gemma", "num_attention_heads": 16,
		"num_hidden_layers": 28, "num_key_value_heads": 16, "pad_token_id": 0, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 10000.0,
		"torch_dtype": "bfloat16", "transformers_version": "4.38.0.dev0", "use_cache": true, "vocab_size": 256000}`},
	{"EleutherAI/gpt-neox-20b", 20_554_567_680, `{"architectures": ["GPTNeoXForCausalLM"], "attention_probs_dropout_prob": 0, "bos_token_id": 0,
		"eos_token_id": 0, "hidden_act": "gelu_fast", "hidden_dropout_prob": 0, "hidden_size": 6144, "initializer_range": 0.02,
		"intermediate_size": 24576, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 64,
		"num_hidden_layers": 44, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false, "torch_dtype": "float16",
		"transformers_version": "4.19.0.dev0", "use_cache": true, "vocab_size": 50432}`},
	{"openai-community/gpt2-xl", 1_557_611_200, `{"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1,
		"bos_token_id": 50256, "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
		"model_type": "gpt2", "n_ctx": 1024, "n_embd": 1600, "n_head": 25, "n_layer": 48, "n_positions": 1024, "output_past": true,
		"resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index",
		"summary_use_proj": true, "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257}`},
	{"facebook/bart-large-cnn", 406_290_432 + 50264, `{"_num_labels": 3, "activation_dropout": 0.0, "activation_function": "gelu",
		"add_final_layer_norm": false, "architectures": ["BartForConditionalGeneration"], "attention_dropout": 0.0, "bos_token_id": 0,
		"classif_dropout": 0.0, "classifier_dropout": 0.0, "d_model": 1024, "decoder_attention_heads": 16, "decoder_ffn_dim": 4096,
		"decoder_layerdrop": 0.0, "decoder_layers": 12, "decoder_start_token_id": 2, "dropout": 0.1, "early_stopping": true,
		"encoder_attention_heads": 16, "encoder_ffn_dim": 4096, "encoder_layerdrop": 0.0, "encoder_layers": 12, "eos_token_id": 2,
		"force_bos_token_to_be_generated": true, "forced_bos_token_id": 0, "forced_eos_token_id": 2, "gradient_checkpointing": false,
		"id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, "init_std": 0.02, "is_encoder_decoder": true,
		"label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2}, "length_penalty": 2.0, "max_length": 142, "max_position_embeddings": 1024,
		"min_length": 56, "model_type": "bart", "no_repeat_ngram_size": 3, "normalize_before": false, "num_beams": 4, "num_hidden_layers": 12,
		"output_past": true, "pad_token_id": 1, "prefix": " ", "scale_embedding": false, "task_specific_params": {"summarization": {"num_beams": 4}},
		"transformers_version": "4.7.0.dev0", "use_cache": true, "vocab_size": 50264}`},
	{"THUDM/GLM-4-9B-0414", 9_400_279_040, `{"architectures": ["Glm4ForCausalLM"], "attention_bias": true, "attention_dropout": 0.0,
		"eos_token_id": [151329, 151336, 151338], "head_dim": 128, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
		"intermediate_size": 13696, "max_position_embeddings": 32768, "model_type": "glm4", "num_attention_heads": 32, "num_hidden_layers": 40,
		"num_key_value_heads": 2, "pad_token_id": 151329, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
		"tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.52.0.dev0", "use_cache": true, "vocab_size": 151552}`},
	{"tiiuae/falcon-40b", 41_303_293_952, `{"alibi": false, "apply_residual_connection_post_layernorm": false, "architectures":
		["FalconForCausalLM"], "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_falcon.FalconConfig", "AutoModelForCausalLM":
		"modeling_falcon.FalconForCausalLM"}, "bias": false, "bos_token_id": 11, "eos_token_id": 11, "hidden_dropout": 0.0, "hidden_size": 8192,
		"initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "falcon", "new_decoder_architecture": true, "num_attention_heads":
		128, "num_hidden_layers": 60, "num_kv_heads": 8, "parallel_attn": true, "torch_dtype": "bfloat16", "transformers_version": "4.27.4",
		"use_cache": true, "vocab_size": 65024}`},
	{"answerdotai/ModernBERT-large", 395_881_664, `{"architectures": ["ModernBertForMaskedLM"], "attention_bias": false, "attention_dropout":
		0.0, "bos_token_id": 50281, "classifier_activation": "gelu", "classifier_bias": false, "classifier_dropout": 0.0, "classifier_pooling":
		"mean", "cls_token_id": 50281, "decoder_bias": true, "deterministic_flash_attn": false, "embedding_dropout": 0.0, "eos_token_id": 50282,
		"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "gradient_checkpointing": false, "hidden_activation": "gelu", "hidden_size":
		1024, "initializer_cutoff_factor": 2.0, "initializer_range": 0.02, "intermediate_size": 2624, "layer_norm_eps": 1e-05, "local_attention":
		128, "local_rope_theta": 10000.0, "max_position_embeddings": 8192, "mlp_bias": false, "mlp_dropout": 0.0, "model_type": "modernbert",
		"norm_bias": false, "norm_eps": 1e-05, "num_attention_heads": 16, "num_hidden_layers": 28, "pad_token_id": 50283, "position_embedding_type":
		"absolute", "sep_token_id": 50282, "tie_word_embeddings": true, "torch_dtype": "float32", "transformers_version": "4.47.0.dev0",
		"vocab_size": 50368}`},
	{"01-ai/Yi-1.5-6B", 6_061_035_520, `{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
		"bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 11008,
		"max_position_embeddings": 4096, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 4,
		"pad_token_id": 0, "pretraining_tp": 1, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0, "tie_word_embeddings": false,
		"torch_dtype": "bfloat16", "transformers_version": "4.40.0", "use_cache": false, "vocab_size": 64000}`},
	{"Qwen/Qwen3-4B-Instruct-2507", 4_022_468_096, `{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
		"bos_token_id": 151643, "eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 2560, "initializer_range": 0.02,
		"intermediate_size": 9728, "max_position_embeddings": 262144, "max_window_layers": 36, "model_type": "qwen3", "num_attention_heads": 32,
		"num_hidden_layers": 36, "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000, "sliding_window":
		null, "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": true, "use_sliding_window":
		false, "vocab_size": 151936}`},
	{"facebook/opt-350m", 331_196_416, `{"_remove_final_layer_norm": false, "activation_function": "relu", "architectures": ["OPTForCausalLM"],
		"attention_dropout": 0.0, "do_layer_norm_before": false, "dropout": 0.1, "ffn_dim": 4096, "hidden_size": 1024,
		"max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 16, "num_hidden_layers": 24, "pad_token_id": 1,
		"vocab_size": 50272, "word_embed_proj_dim": 512}`},
	{"stabilityai/stablelm-2-12b", 12_143_185_920, `{"architectures": ["StableLmForCausalLM"], "hidden_act": "silu", "hidden_size": 5120, "intermediate_size": 13824,
		"layer_norm_eps": 1e-05, "max_position_embeddings": 4096, "model_type": "stablelm", "num_attention_heads": 32, "num_hidden_layers": 40,
		"num_key_value_heads": 8, "partial_rotary_factor": 0.25, "qk_layernorm": true, "rope_theta": 10000, "tie_word_embeddings": false,
		"use_parallel_residual": true, "use_qkv_bias": false, "vocab_size": 100352}`},
	{"CohereForAI/c4ai-command-r-plus", 103_810_674_688, `{"architectures": ["CohereForCausalLM"], "attention_bias": false, "hidden_act": "silu", "hidden_size": 12288,
		"intermediate_size": 33792, "layer_norm_eps": 1e-05, "logit_scale": 0.8333333333333334, "max_position_embeddings": 131072,
		"model_type": "cohere", "num_attention_heads": 96, "num_hidden_layers": 64, "num_key_value_heads": 8, "rope_theta": 75000000.0,
		"use_qk_norm": true, "vocab_size": 256000}`},
	{"allenai/OLMo-1.7-7B-hf", 6_888_095_744, `{"architectures": ["OlmoForCausalLM"], "clip_qkv": 8.0, "hidden_act": "silu", "hidden_size": 4096,
		"intermediate_size": 11008, "max_position_embeddings": 2048, "model_type": "olmo", "num_attention_heads": 32, "num_hidden_layers": 32,
		"num_key_value_heads": 32, "rope_theta": 10000.0, "tie_word_embeddings": false, "vocab_size": 50304}`},
	{"adept/persimmon-8b-base", 9_397_175_296, `{"architectures": ["PersimmonForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 71013, "eos_token_id": 71013,
		"hidden_act": "relu2", "hidden_dropout": 0.0, "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 16384,
		"layer_norm_eps": 1e-05, "max_position_embeddings": 16384, "model_type": "persimmon", "num_attention_heads": 64, "num_hidden_layers": 36,
		"partial_rotary_factor": 0.5, "qk_layernorm": true, "rope_theta": 25000.0, "rope_scaling": null, "tie_word_embeddings": false,
		"torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0", "use_cache": true, "vocab_size": 262144}`},
	{"EleutherAI/gpt-neo-125m", 125_198_592, `{"activation_function": "gelu_new", "architectures": ["GPTNeoForCausalLM"], "attention_dropout": 0, "attention_layers": ["global",
		"local", "global", "local", "global", "local", "global", "local", "global", "local", "global", "local"], "attention_types": [[["global", "local"],
		6]], "bos_token_id": 50256, "embed_dropout": 0, "eos_token_id": 50256, "gradient_checkpointing": false, "hidden_size": 768,
		"initializer_range": 0.02, "intermediate_size": null, "layer_norm_epsilon": 1e-05, "max_position_embeddings": 2048, "model_type": "gpt_neo",
		"num_heads": 12, "num_layers": 12, "resid_dropout": 0, "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
		"summary_type": "cls_index", "summary_use_proj": true, "torch_dtype": "float32", "transformers_version": "4.9.0.dev0", "use_cache": true,
		"vocab_size": 50257, "window_size": 256}`},
	{"bigcode/starcoder", 15_517_456_384, `{"activation_function": "gelu", "architectures": ["GPTBigCodeForCausalLM"], "attention_softmax_in_fp32": true, "attn_pdrop": 0.1,
		"bos_token_id": 0, "embd_pdrop": 0.1, "eos_token_id": 0, "inference_runner": 0, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
		"max_batch_size": null, "max_sequence_length": null, "model_type": "gpt_bigcode", "multi_query": true, "n_embd": 6144, "n_head": 48,
		"n_inner": 24576, "n_layer": 40, "n_positions": 8192, "pad_key_length": true, "pre_allocate_kv_cache": false, "resid_pdrop": 0.1,
		"scale_attention_softmax_in_fp32": true, "scale_attn_weights": true, "summary_activation": null, "summary_first_dropout": 0.1,
		"summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true, "torch_dtype": "float32",
		"transformers_version": "4.28.1", "use_cache": true, "validate_runner_input": true, "vocab_size": 49152}`},
	{"bigcode/gpt_bigcode-santacoder", 1_124_886_528, `{"activation_function": "gelu_fast", "architectures": ["GPTBigCodeForCausalLM"], "attention_softmax_in_fp32": true,
		"attn_pdrop": 0.1, "bos_token_id": 49152, "embd_pdrop": 0.1, "eos_token_id": 49152, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
		"model_type": "gpt_bigcode", "multi_query": true, "n_embd": 2048, "n_head": 16, "n_inner": 8192, "n_layer": 24, "n_positions": 2048,
		"resid_pdrop": 0.1, "runner_max_sequence_length": null, "scale_attention_softmax_in_fp32": true, "scale_attn_weights": true,
		"summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
		"torch_dtype": "float32", "transformers_version": "4.28.0.dev0", "use_cache": true, "vocab_size": 49280}`},
	{"google/mt5-small", 172_119_424, `{"_name_or_path": "/home/patrick/hugging_face/mt5/mt5-small", "architectures": ["MT5ForConditionalGeneration"], "d_ff": 1024,
		"d_kv": 64, "d_model": 512, "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1, "feed_forward_proj": "gated-gelu",
		"initializer_factor": 1.0, "is_encoder_decoder": true, "layer_norm_epsilon": 1e-06, "model_type": "mt5", "num_decoder_layers": 8,
		"num_heads": 6, "num_layers": 8, "pad_token_id": 0, "relative_attention_num_buckets": 32, "tie_word_embeddings": false,
		"tokenizer_class": "T5Tokenizer", "transformers_version": "4.10.0.dev0", "use_cache": true, "vocab_size": 250112}`},
}

// Configs of published models that there is no model for are refused, by the field that asks for
// it. Most are shortened to what says so.
func TestRefusedPublished(t *testing.T) {
	for _, c := range []struct{ name, config, want string }{
		{"albert/albert-base-v2", `{"architectures": ["AlbertForMaskedLM"], "embedding_size": 128, "model_type": "albert"}`,
			`field model_type is "albert", it needs to be one of bart, bert,`},
		{"microsoft/deberta-base", `{"model_type": "deberta", "pos_att_type": "c2p|p2c"}`, `field model_type is "deberta", it needs`},
		{"state-spaces/mamba-130m-hf", `{"architectures": ["MambaForCausalLM"], "model_type": "mamba"}`, `field model_type is "mamba"`},
		{"microsoft/Phi-3.5-MoE-instruct", `{"architectures": ["PhiMoEForCausalLM"], "model_type": "phimoe"}`, `field model_type is "phimoe"`},
		{"Qwen/Qwen2.5-VL-3B-Instruct", `{"architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl"}`,
			`field model_type is "qwen2_5_vl"`},
		{"meta-llama/Llama-4-Scout-17B-16E", `{"architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4"}`, `field model_type is "llama4"`},
		{"THUDM/chatglm3-6b", `{"architectures": ["ChatGLMModel"], "model_type": "chatglm", "num_layers": 28}`, `field model_type is "chatglm"`},
		{"google/electra-base-discriminator", `{"architectures": ["ElectraForPreTraining"], "attention_probs_dropout_prob": 0.1, "embedding_size": 768,
			"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "intermediate_size": 3072, "layer_norm_eps": 1e-12,
			"max_position_embeddings": 512, "model_type": "electra", "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 2,
			"vocab_size": 30522}`, `field architectures is "ElectraForPreTraining", it needs to end with`},
		{"mosaicml/mpt-7b-storywriter", `{"architectures": ["MPTForCausalLM"], "attn_config": {"alibi": true, "alibi_bias_max": 16, "attn_impl": "torch", "attn_pdrop": 0,
			"attn_type": "multihead_attention", "attn_uses_sequence_id": false, "clip_qkv": 6, "prefix_lm": false, "qk_ln": false, "softmax_scale": null},
			"d_model": 4096, "emb_pdrop": 0, "embedding_fraction": 1.0, "expansion_ratio": 4, "init_device": "cpu", "learned_pos_emb": true,
			"logit_scale": null, "max_seq_len": 65536, "model_type": "mpt", "n_heads": 32, "n_layers": 32, "no_bias": true, "norm_type": "low_precision_layernorm",
			"resid_pdrop": 0, "tokenizer_name": "EleutherAI/gpt-neox-20b", "torch_dtype": "bfloat16", "transformers_version": "4.28.1", "use_cache": false,
			"verbose": 0, "vocab_size": 50432}`, "field attn_config.alibi_bias_max is 16, only 8 is supported"},
		{"mosaicml/mpt-30b-like, without ALiBi", `{"architectures": ["MptForCausalLM"], "attn_config": {"alibi": false}, "d_model": 7168, "model_type": "mpt",
			"n_heads": 64, "n_layers": 48, "vocab_size": 50432}`, "field attn_config.alibi is false"},
	} {
		_, _, err := describe([]byte(c.config), Options{})
		if err == nil || !strings.Contains(err.Error(), "config.json: "+c.want) {
			t.Errorf("%s: %v, want an error with %q", c.name, err, c.want)
		}
	}
}
