package pretrained

import (
	"slices"
	"strings"
)

// The fields of decoders that are not quite of Llama's shape; fields_test.go tests them.

// shapeFields are what nearly all decoders have.
var shapeFields = []configField{
	{"bos_token_id", `3`, idle, ""},
	{"eos_token_id", `[3, 4]`, idle, ""},
	{"id2label", `{"0": "a"}`, idle, ""}, // of heads for classes
	{"num_labels", `3`, refused, ""},
	{"pad_token_id", `3`, idle, ""},
	{"rms_norm_eps", `0.1`, refused, ""},
	{"vocab_size", `47`, works, ""},
}

// sizeFields are those of shapes by their usual names.
var sizeFields = slices.Concat(shapeFields, []configField{
	{"hidden_size", `48`, works, `{"rope_parameters": null, "head_dim": null}`},
	{"max_position_embeddings", `2`, works, `{"rope_parameters": null}`}, // longer texts are refused
	{"num_attention_heads", `8`, works, `{"rope_parameters": null, "head_dim": null}`},
	{"num_hidden_layers", `1`, works, `{"layer_types": null}`},
})

// turningFields are those of the decoders that turn queries and keys and are not read by
// readDecoder.
var turningFields = slices.Concat(sizeFields, []configField{
	{"head_dim", `4`, refused, ""},
	{"rope_parameters", `{"rope_type": "linear", "factor": 2.0}`, works, `{"rope_parameters": {"rope_type": "default"}}`},
	{"rope_scaling", `{"type": "linear", "factor": 2.0}`, works, `{"rope_parameters": null}`},
	{"rope_scaling", `{"type": "linear", "factor": 2.0}`, refused, `{"rope_parameters": {"rope_type": "default"}}`},
})

// llamaLike are those of the decoders whose MLPs and groups of heads are Llama's.
var llamaLike = slices.Concat(turningFields, hiddenAct, []configField{
	{"attention_dropout", `0.5`, works, ""},
	{"intermediate_size", `28`, works, ""},
	{"num_key_value_heads", `1`, works, ""},
	{"rope_theta", `10`, works, `{"rope_parameters": null}`},
})

// cohereFields are those of Cohere and Cohere 2.
var cohereFields = slices.Concat(llamaLike, []configField{
	{"attention_bias", `true`, works, `{"attention_bias": false}`},
	{"layer_norm_eps", `0.1`, works, ""},
	{"logit_scale", `2`, works, ""},
	{"logit_scale", `0`, refused, ""},
	{"partial_rotary_factor", `0.5`, refused, ""},
	{"tie_word_embeddings", `false`, works, ""},
})

// partly is a list whose models turn an odd part of each head by default: a field makes it another.
func partly(field string, list []configField) []configField {
	list = slices.Clone(list)
	for i := range list {
		f := &list[i]
		f.with = strings.ReplaceAll(f.with, `"rope_parameters": null`, `"rope_parameters": null, "`+field+`": 0.67`)
		f.with = strings.ReplaceAll(f.with, `{"rope_type": "default"`, `{"partial_rotary_factor": 0.67, "rope_type": "default"`)
		if f.name == "rope_parameters" {
			f.value = strings.ReplaceAll(f.value, `{"rope_type"`, `{"partial_rotary_factor": 0.67, "rope_type"`)
		}
	}
	return list
}

// glmFields are those of GLM and GLM-4.
var glmFields = slices.Concat(without(decoderFields, "partial_rotary_factor", "head_dim", "hidden_size", "num_attention_heads"), hiddenAct, []configField{
	{"attention_bias", `false`, works, ""},
	{"head_dim", `4`, works, `{"rope_parameters": null}`},
	{"hidden_size", `48`, works, ""},
	{"num_attention_heads", `8`, works, ""},
	{"partial_rotary_factor", `1`, works, `{"rope_parameters": null}`},
	{"tie_word_embeddings", `true`, works, ""},
})

// bloomNames are those that BLOOM and Falcon may have in the place of the usual ones.
var bloomNames = []configField{
	{"n_embed", `48`, works, `{"hidden_size": null, "n_embed": 24}`},
	{"n_embed", `48`, refused, ""}, // another than hidden_size
}

// rewardFields are those of heads for classes of decoders.
var rewardFields = slices.Concat(without(decoderFields, "id2label", "num_labels", "pad_token_id"), hiddenAct, []configField{
	{"attention_bias", `true`, works, ""},
	{"id2label", `{"0": "a", "1": "b"}`, works, ""},
	{"num_labels", `5`, works, ""},
	{"num_labels", `0`, refused, ""},
	{"pad_token_id", `5`, works, ""}, // the last token of a text
	{"pad_token_id", `null`, works, ""},
	{"pad_token_id", `"a"`, refused, ""},
	{"tie_word_embeddings", `true`, idle, ""}, // of a head that is not there
})

func init() {
	for name, list := range map[string][]configField{
		"gemma": slices.Concat(decoderFields, []configField{
			{"attention_bias", `true`, works, ""},
			{"hidden_act", `"silu"`, works, ""},
			{"hidden_act", `"gelu"`, idle, ""}, // was always the approximation
			{"hidden_activation", `"silu"`, idle, ""},
			{"tie_word_embeddings", `false`, works, ""},
			{"use_bidirectional_attention", `true`, refused, ""},
		}),
		"llama-classes": rewardFields,
		"qwen3-classes": slices.Concat(rewardFields, windows),
		"olmo": slices.Concat(llamaLike, []configField{
			{"attention_bias", `true`, works, ""},
			{"clip_qkv", `1`, works, ""},
			{"clip_qkv", `-1`, refused, ""},
			{"partial_rotary_factor", `0.5`, refused, ""},
			{"tie_word_embeddings", `true`, works, ""},
		}),
		"olmo3": slices.Concat(without(decoderFields, "rope_parameters", "rope_scaling", "rope_theta"), hiddenAct, []configField{
			{"attention_bias", `true`, works, ""},
			{"layer_types", `["full_attention", "full_attention"]`, works, ""},
			{"rope_parameters", `{"full_attention": {"rope_type": "default"}}`, works, ""},
			{"rope_parameters", `{"sliding_attention": {"rope_type": "linear", "factor": 3.0}}`, works, `{"rope_parameters": null}`},
			{"rope_parameters", `{"rope_type": "linear", "factor": 3.0}`, refused, ""},
			{"rope_scaling", `{"type": "linear", "factor": 2.0}`, works, `{"rope_parameters": null}`},
			{"rope_scaling", `{"type": "linear", "factor": 2.0}`, refused, ""},
			{"rope_theta", `10`, refused, `{"rope_parameters": null}`},
			{"rope_theta", `10`, works, `{"rope_parameters": null, "layer_types": ["full_attention", "full_attention"]}`},
			{"rope_theta", `10`, works, `{"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": 10}}}`},
			{"sliding_window", `2`, works, ""},
			{"sliding_window", `null`, refused, ""},
			{"tie_word_embeddings", `true`, works, ""},
		}),
		"granite": slices.Concat(decoderFields, hiddenAct, []configField{
			{"attention_bias", `false`, works, ""},
			{"attention_multiplier", `1`, works, ""},
			{"embedding_multiplier", `1`, works, ""},
			{"logits_scaling", `1`, works, ""},
			{"logits_scaling", `0`, refused, ""},
			{"mlp_bias", `true`, works, ""},
			{"residual_multiplier", `1`, works, ""},
			{"tie_word_embeddings", `true`, works, ""},
		}),
		"cohere": slices.Concat(without(cohereFields, "head_dim"), []configField{
			{"head_dim", `4`, works, ""}, {"use_qk_norm", `true`, works, ""},
		}),
		"cohere2": slices.Concat(without(cohereFields, "head_dim"), []configField{
			{"_sliding_window_pattern", `1`, idle, ""}, // layer_types says it
			{"head_dim", `4`, works, ""},
			{"order_of_interleaved_layers", `"local_attn_first"`, idle, ""}, // transformers looks at none of these
			{"position_embedding_type", `"other"`, idle, ""},
			{"rotary_pct", `0.5`, idle, ""},
			{"use_embedding_sharing", `true`, idle, ""},
			{"use_gated_activation", `true`, idle, ""},
			{"use_parallel_block", `true`, idle, ""},
			{"use_parallel_embedding", `true`, idle, ""},
			{"layer_types", `["full_attention", "full_attention"]`, works, ""},
			{"sliding_window", `2`, works, ""},
			{"sliding_window", `null`, refused, ""},
			{"sliding_window_pattern", `1`, works, `{"layer_types": null}`},
		}),
		"glm":  glmFields,
		"glm4": glmFields,
		"stablelm": slices.Concat(partly("partial_rotary_factor", llamaLike), []configField{
			{"hidden_dropout", `0.5`, refused, ""},
			{"layer_norm_eps", `0.1`, works, ""},
			{"partial_rotary_factor", `1`, works, `{"rope_parameters": null, "partial_rotary_factor": 0.67}`},
			{"partial_rotary_factor", `0.1`, refused, `{"rope_parameters": null, "partial_rotary_factor": 0.67}`}, // turns nothing
			{"partial_rotary_factor", `0.5`, refused, `{"rope_parameters": null, "partial_rotary_factor": 0.67}`}, // turns 3 of 6
			{"qk_layernorm", `true`, works, ""},
			{"tie_word_embeddings", `true`, works, ""},
			{"use_parallel_residual", `true`, works, ""},
			{"use_qkv_bias", `false`, works, ""},
		}),
		"starcoder2": slices.Concat(without(llamaLike, "hidden_act"), []configField{
			{"attention_bias", `false`, idle, ""}, // transformers does not look at it
			{"embedding_dropout", `0.5`, works, ""},
			{"hidden_act", `"gelu"`, works, ""},
			{"mlp_type", `"gated"`, idle, ""}, // nor at these
			{"norm_type", `"rms_norm"`, idle, ""},
			{"norm_epsilon", `0.1`, works, ""},
			{"partial_rotary_factor", `0.5`, refused, ""},
			{"residual_dropout", `0.5`, works, ""},
			{"sliding_window", `2`, works, ""},
			{"tie_word_embeddings", `false`, works, ""},
			{"use_bias", `false`, works, ""},
		}),
		"phi": slices.Concat(partly("partial_rotary_factor", without(llamaLike, "hidden_act")), []configField{
			{"embd_pdrop", `0.5`, works, ""},
			{"hidden_act", `"gelu"`, works, ""},
			{"layer_norm_eps", `0.1`, works, ""},
			{"partial_rotary_factor", `1`, works, `{"rope_parameters": null, "partial_rotary_factor": 0.67}`},
			{"qk_layernorm", `true`, works, ""},
			{"resid_pdrop", `0.5`, works, ""},
			{"tie_word_embeddings", `true`, works, ""},
		}),
		"persimmon": slices.Concat(partly("partial_rotary_factor", turningFields), []configField{
			{"attention_dropout", `0.5`, works, ""},
			{"hidden_act", `"gelu"`, works, ""},
			{"hidden_dropout", `0.5`, refused, ""},
			{"intermediate_size", `28`, works, ""},
			{"layer_norm_eps", `0.1`, works, ""},
			{"num_key_value_heads", `2`, refused, ""},
			{"partial_rotary_factor", `1`, works, `{"rope_parameters": null, "partial_rotary_factor": 0.67}`},
			{"qk_layernorm", `false`, works, ""},
			{"rope_theta", `10`, works, `{"rope_parameters": null, "partial_rotary_factor": 0.67}`},
			{"tie_word_embeddings", `true`, works, ""},
		}),
		"arcee": slices.Concat(without(decoderFields, "hidden_size"), hiddenAct, []configField{
			{"attention_bias", `true`, works, ""},
			{"hidden_size", `48`, works, `{"rope_parameters": null, "head_dim": null}`},
			{"mlp_bias", `false`, works, ""},
			{"tie_word_embeddings", `true`, works, ""},
		}),
		"ernie4_5": slices.Concat(without(decoderFields, "attention_dropout"), hiddenAct, []configField{
			{"attention_dropout", `0.5`, refused, ""}, // has none in transformers
			{"tie_word_embeddings", `false`, works, ""},
			{"use_bias", `false`, works, ""},
		}),
		"seed_oss": slices.Concat(decoderFields, hiddenAct, []configField{
			{"attention_bias", `false`, works, ""},
			{"attention_out_bias", `true`, works, ""},
			{"attention_out_bias", `true`, refused, `{"attention_bias": false}`},
			{"mlp_bias", `true`, works, ""},
			{"residual_dropout", `0.5`, works, ""},
			{"tie_word_embeddings", `true`, works, ""},
		}),
		"gpt_neo": slices.Concat(shapeFields, []configField{
			{"activation_function", `"gelu"`, works, ""},
			{"attention_dropout", `0.5`, works, ""},
			{"attention_layers", `["global", "local", "global"]`, refused, ""}, // beside other attention_types
			{"attention_types", `[[["global"], 3]]`, works, `{"attention_layers": null}`},
			{"attention_types", `[[["global"], 4]]`, refused, `{"attention_layers": null}`},
			{"attention_types", `[[["global"], 2], [["other"], 1]]`, refused, `{"attention_layers": null}`},
			{"attention_types", `[[["global"], -3]]`, refused, `{"attention_layers": null}`},
			{"attention_types", `[["global", 3]]`, refused, `{"attention_layers": null}`},
			{"classifier_dropout", `0.5`, idle, ""},
			{"embed_dropout", `0.5`, works, ""},
			{"hidden_size", `48`, works, ""},
			{"intermediate_size", `28`, works, ""},
			{"layer_norm_epsilon", `0.1`, works, ""},
			{"max_position_embeddings", `20`, works, ""},
			{"num_heads", `2`, works, ""},
			{"resid_dropout", `0.5`, works, ""},
			{"summary_type", `"mean"`, idle, ""},
			{"tie_word_embeddings", `false`, works, ""},
			{"window_size", `2`, works, ""},
		}),
		"gpt_bigcode": slices.Concat(shapeFields, []configField{
			{"activation_function", `"gelu"`, works, ""},
			{"add_cross_attention", `true`, refused, ""},
			{"attention_softmax_in_fp32", `false`, idle, ""}, // the scores are float32 anyway
			{"attn_pdrop", `0.5`, works, ""},
			{"embd_pdrop", `0.5`, works, ""},
			{"layer_norm_epsilon", `0.1`, works, ""},
			{"multi_query", `false`, works, `{"num_key_value_heads": null}`},
			{"n_embd", `48`, works, ""},
			{"n_head", `2`, works, ""},
			{"n_inner", `28`, works, ""},
			{"n_layer", `1`, works, ""},
			{"n_positions", `20`, works, ""},
			{"num_key_value_heads", `2`, refused, ""},
			{"resid_pdrop", `0.5`, works, ""},
			{"scale_attention_softmax_in_fp32", `false`, idle, ""},
			{"scale_attn_weights", `false`, works, ""},
			{"summary_type", `"mean"`, idle, ""},
			{"tie_word_embeddings", `false`, works, ""},
			{"validate_runner_input", `true`, idle, ""}, // of another program
		}),
		"gpt_neox": slices.Concat(partly("rotary_pct", without(turningFields, "num_attention_heads")), []configField{
			{"attention_bias", `false`, works, ""},
			{"attention_dropout", `0.5`, works, ""},
			{"classifier_dropout", `0.5`, idle, ""},
			{"hidden_act", `"silu"`, works, ""},
			{"hidden_dropout", `0.5`, works, ""},
			{"intermediate_size", `28`, works, ""},
			{"attention_probs_dropout_prob", `0.5`, idle, ""}, // older names, which transformers does not look at
			{"hidden_dropout_prob", `0.5`, idle, ""},
			{"is_decoder", `true`, idle, ""},
			{"layer_norm_eps", `0.1`, works, ""},
			{"num_key_value_heads", `1`, refused, ""},
			{"rotary_emb_base", `10`, works, `{"rope_parameters": null, "rotary_pct": 0.67}`},
			{"num_attention_heads", `6`, works, `{"rope_parameters": {"partial_rotary_factor": 1}}`},
			{"rotary_pct", `1`, works, `{"rope_parameters": null, "rotary_pct": 0.67}`},
			{"tie_word_embeddings", `true`, works, ""},
			{"use_parallel_residual", `false`, works, ""},
		}),
		"gptj": slices.Concat(shapeFields, []configField{
			{"activation_function", `"gelu"`, works, ""},
			{"attn_pdrop", `0.5`, works, ""},
			{"embd_pdrop", `0.5`, works, ""},
			{"layer_norm_epsilon", `0.1`, works, ""},
			{"n_ctx", `4`, idle, ""}, // transformers does not look at it
			{"n_embd", `48`, works, ""},
			{"n_head", `4`, works, ""},
			{"n_inner", `28`, works, ""},
			{"n_layer", `1`, works, ""},
			{"n_positions", `2`, works, ""},
			{"resid_pdrop", `0.5`, works, ""},
			{"rotary_dim", `4`, works, ""},
			{"scale_attn_weights", `false`, idle, ""}, // nor at this
			{"tie_word_embeddings", `true`, works, ""},
		}),
		"falcon": slices.Concat(turningFields, bloomNames, []configField{
			{"activation", `"silu"`, works, ""},
			{"alibi", `true`, works, ""},
			{"apply_residual_connection_post_layernorm", `true`, idle, ""}, // transformers does not look at it
			{"attention_dropout", `0.5`, works, ""},
			{"bias", `true`, works, ""},
			{"ffn_hidden_size", `28`, works, ""},
			{"hidden_dropout", `0.5`, works, ""},
			{"layer_norm_epsilon", `0.1`, works, ""},
			{"multi_query", `false`, works, ""},
			{"new_decoder_architecture", `true`, works, ""},
			{"num_kv_heads", `2`, works, `{"new_decoder_architecture": true}`},
			{"num_ln_in_parallel_attn", `1`, works, `{"new_decoder_architecture": true}`},
			{"num_ln_in_parallel_attn", `2`, refused, ""},
			{"num_ln_in_parallel_attn", `3`, refused, `{"new_decoder_architecture": true}`},
			{"parallel_attn", `false`, works, ""},
			{"rope_theta", `10`, works, `{"rope_parameters": null}`},
			{"tie_word_embeddings", `false`, works, ""},
		}),
		"falcon-alibi": {
			{"rope_parameters", `{"rope_type": "linear", "factor": 2.0}`, idle, ""},
			{"rope_scaling", `{"type": "linear", "factor": 2.0}`, idle, ""},
			{"rope_theta", `10`, idle, ""},
		},
		"bloom": slices.Concat(shapeFields, bloomNames, []configField{
			{"apply_residual_connection_post_layernorm", `true`, works, ""},
			{"attention_dropout", `0.5`, works, ""},
			{"hidden_dropout", `0.5`, works, ""},
			{"hidden_size", `48`, works, ""},
			{"layer_norm_epsilon", `0.1`, works, ""},
			{"n_head", `4`, works, ""},
			{"n_layer", `1`, works, ""},
			{"offset_alibi", `7`, idle, ""}, // transformers does not look at it
			{"pretraining_tp", `2`, idle, ""},
			{"seq_length", `7`, idle, ""}, // nor at this
			{"slow_but_exact", `true`, idle, ""},
			{"slow_but_exact", `true`, refused, `{"pretraining_tp": 2}`}, // leaves biases out
			{"tie_word_embeddings", `false`, works, ""},
		}),
		"opt": slices.Concat(without(sizeFields, "hidden_size"), []configField{
			{"_remove_final_layer_norm", `true`, works, ""},
			{"activation_function", `"gelu"`, works, ""},
			{"activation_dropout", `0.5`, idle, ""}, // transformers does not look at it
			{"attention_dropout", `0.5`, works, ""},
			{"do_layer_norm_before", `false`, works, ""},
			{"dropout", `0.5`, works, ""},
			{"enable_bias", `false`, works, ""},
			{"ffn_dim", `28`, works, ""},
			{"hidden_size", `48`, works, `{"word_embed_proj_dim": null}`},
			{"init_std", `1`, idle, ""}, // of weights that are not loaded
			{"layer_norm_elementwise_affine", `false`, works, ""},
			{"layerdrop", `0.5`, idle, ""}, // of training
			{"layerdrop", `-1`, refused, ""},
			{"tie_word_embeddings", `false`, works, ""},
			{"word_embed_proj_dim", `12`, works, ""},
		}),
		"mpt": slices.Concat(shapeFields, []configField{
			{"attn_config", `{"alibi": false}`, refused, ""},
			{"attn_config", `{"alibi_bias_max": 16}`, works, ""},
			{"attn_config", `{"alibi_bias_max": 0}`, refused, ""},
			{"attn_config", `{"attn_impl": "triton"}`, idle, ""},
			{"attn_config", `{"attn_pdrop": 0.5}`, works, ""},
			{"attn_config", `{"attn_type": "multiquery_attention"}`, refused, ""},
			{"attn_config", `{"attn_uses_sequence_id": true}`, refused, ""},
			{"attn_config", `{"clip_qkv": 0}`, idle, ""},
			{"attn_config", `{"clip_qkv": 1}`, works, ""},
			{"attn_config", `{"prefix_lm": true}`, refused, ""},
			{"attn_config", `{"qk_ln": true}`, refused, ""},
			{"attn_config", `{"softmax_scale": 1}`, works, ""},
			{"d_model", `48`, works, ""},
			{"emb_pdrop", `0.5`, idle, ""}, // transformers does not look at it
			{"embedding_fraction", `0.5`, refused, ""},
			{"expansion_ratio", `2`, refused, ""},
			{"init_device", `"meta"`, idle, ""},
			{"layer_norm_epsilon", `0.1`, works, ""},
			{"learned_pos_emb", `false`, idle, ""}, // nor at this
			{"logit_scale", `2`, refused, ""},
			{"max_seq_len", `2`, works, ""},
			{"n_heads", `4`, works, ""},
			{"n_layers", `1`, works, ""},
			{"no_bias", `false`, refused, ""},
			{"norm_type", `"layernorm"`, idle, ""},
			{"resid_pdrop", `0.5`, idle, ""}, // nor at this
			{"tie_word_embeddings", `false`, works, ""},
		}),
	} {
		configFields[name] = list
	}
}
