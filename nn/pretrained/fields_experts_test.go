package pretrained

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The fields of the families with experts; fields_test.go tests them.

// expertFields are what they have in common.
var expertFields = slices.Concat(decoderFields, []configField{
	{"hidden_act", `"gelu"`, works, ""},
	{"hidden_act", `"mish"`, refused, ""},
	{"num_experts_per_tok", `1`, works, ""},
	{"num_experts_per_tok", `9`, refused, ""},
	{"output_router_logits", `true`, idle, ""}, // of the loss
	{"router_aux_loss_coef", `0.5`, idle, ""},  // of the loss
	{"tie_word_embeddings", `true`, works, ""},
})

// sparseFields are what Qwen's have.
var sparseFields = []configField{
	{"decoder_sparse_step", `2`, works, `{"mlp_only_layers": []}`},
	{"mlp_only_layers", `[1]`, works, ""},
	{"moe_intermediate_size", `28`, works, ""},
}

// latentFields are what DeepSeek-V2 and V3 have in common.
var latentFields = slices.Concat(without(expertFields, "head_dim", "max_position_embeddings", "num_attention_heads", "num_key_value_heads"), []configField{
	{"attention_bias", `true`, works, `{"attention_bias": false}`},
	{"aux_loss_alpha", `0.5`, idle, ""}, // of the loss
	{"ep_size", `2`, idle, ""},          // of how it was trained
	{"first_k_dense_replace", `2`, works, ""},
	{"head_dim", `3`, refused, ""}, // beside qk_rope_head_dim
	{"kv_lora_rank", `12`, works, ""},
	{"max_position_embeddings", `2`, works, ""}, // longer texts are refused
	{"moe_intermediate_size", `28`, works, ""},
	{"moe_layer_freq", `2`, refused, ""},
	{"n_routed_experts", `12`, works, ""},
	{"n_shared_experts", `3`, works, ""},
	{"num_attention_heads", `8`, works, `{"num_key_value_heads": null}`},
	{"num_key_value_heads", `2`, refused, ""},
	{"q_lora_rank", `11`, works, ""},
	{"qk_head_dim", `3`, idle, ""}, // its parts say it
	{"qk_nope_head_dim", `6`, works, ""},
	{"qk_rope_head_dim", `8`, works, `{"head_dim": null}`},
	{"qk_rope_head_dim", `5`, refused, `{"head_dim": null}`},
	{"rope_parameters", `{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "mscale": 1, "mscale_all_dim": 0.7}`, works,
		`{"rope_parameters": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "mscale": 1, "mscale_all_dim": 1}}`},
	{"rope_parameters", `{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "mscale": 0.7, "mscale_all_dim": 1}`, works,
		`{"rope_parameters": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "mscale": 1, "mscale_all_dim": 1}}`},
	{"routed_scaling_factor", `3`, works, ""},
	{"seq_aux", `true`, idle, ""}, // of the loss
	{"v_head_dim", `8`, works, ""},
})

func init() {
	for name, list := range map[string][]configField{
		"mixtral": slices.Concat(expertFields, []configField{
			{"attention_bias", `true`, refused, ""},
			{"num_local_experts", `4`, works, ""},
			{"router_jitter_noise", `0.5`, idle, ""}, // of training
			{"sliding_window", `2`, works, ""},
		}),
		"glm4_moe": slices.Concat(without(expertFields, "partial_rotary_factor", "max_position_embeddings"), []configField{
			{"attention_bias", `false`, works, ""},
			{"first_k_dense_replace", `2`, works, ""},
			{"max_position_embeddings", `2`, works, ""},
			{"moe_intermediate_size", `28`, works, ""},
			{"n_group", `3`, works, ""},
			{"n_group", `4`, refused, ""},
			{"n_routed_experts", `4`, works, ""},
			{"n_shared_experts", `2`, works, ""},
			{"norm_topk_prob", `false`, works, ""},
			{"num_nextn_predict_layers", `2`, idle, ""}, // of layers that are not loaded
			{"partial_rotary_factor", `1`, works, `{"rope_parameters": null}`},
			{"routed_scaling_factor", `3`, works, ""},
			{"topk_group", `2`, works, `{"n_group": 3}`},
			{"use_qk_norm", `false`, works, ""},
		}),
		"deepseek_v2": slices.Concat(latentFields, []configField{
			{"mlp_bias", `true`, works, ""},
			{"n_group", `2`, works, `{"topk_group": 1, "num_experts_per_tok": 2}`},
			{"n_group", `3`, refused, ""},
			{"n_group", `2`, idle, `{"topk_method": "greedy"}`},
			{"norm_topk_prob", `true`, refused, ""},
			{"scoring_func", `"sigmoid"`, refused, ""},
			{"topk_group", `1`, works, `{"num_experts_per_tok": 2}`},
			{"topk_group", `1`, idle, `{"topk_method": "greedy"}`},
			{"topk_method", `"greedy"`, works, ""},
			{"topk_method", `"noaux_tc"`, refused, ""},
		}),
		"deepseek_v3": slices.Concat(latentFields, []configField{
			{"n_group", `2`, works, `{"topk_group": 1, "num_experts_per_tok": 2}`},
			{"n_group", `3`, refused, ""},
			{"norm_topk_prob", `false`, works, ""},
			{"num_nextn_predict_layers", `2`, idle, ""}, // of layers that are not loaded
			{"rope_interleave", `false`, works, ""},
			{"scoring_func", `"softmax"`, refused, ""},
			{"topk_group", `1`, works, `{"num_experts_per_tok": 2}`},
			{"topk_method", `"greedy"`, refused, ""},
		}),
		"gpt_oss": slices.Concat(without(expertFields, "hidden_act", "rope_parameters", "rope_scaling", "partial_rotary_factor"), []configField{
			{"attention_bias", `false`, works, ""},
			{"hidden_act", `"gelu"`, idle, ""},        // transformers does not look at it
			{"initial_context_length", `2`, idle, ""}, // nor at this
			{"layer_types", `["full_attention", "full_attention"]`, works, ""},
			{"num_local_experts", `4`, works, ""},
			{"rope_parameters", `{"rope_type": "linear", "factor": 2.0}`, works, ""},
			{"rope_parameters", `null`, works, ""}, // which stands for a yarn
			{"sliding_window", `2`, works, ""},
			{"swiglu_alpha", `1`, works, ""},
			{"swiglu_alpha", `0`, refused, ""},
			{"swiglu_limit", `1`, works, ""},
		}),
		"olmoe": slices.Concat(expertFields, []configField{
			{"attention_bias", `true`, works, ""},
			{"clip_qkv", `1`, works, ""},
			{"norm_topk_prob", `true`, works, ""},
			{"num_experts", `4`, works, ""},
		}),
		"qwen2_moe": slices.Concat(without(expertFields, "intermediate_size"), sparseFields, []configField{
			{"intermediate_size", `28`, works, `{"mlp_only_layers": [1]}`},
			{"layer_types", `["full_attention", "full_attention"]`, works, ""},
			{"max_window_layers", `0`, works, `{"layer_types": null}`},
			{"norm_topk_prob", `true`, works, ""},
			{"num_experts", `4`, works, ""},
			{"qkv_bias", `false`, works, ""},
			{"shared_expert_intermediate_size", `28`, works, ""},
			{"sliding_window", `2`, works, ""},
			{"use_sliding_window", `false`, works, `{"layer_types": null}`},
		}),
		"qwen3_moe": slices.Concat(expertFields, sparseFields, []configField{
			{"attention_bias", `true`, works, ""},
			{"max_window_layers", `1`, idle, ""}, // transformers does not look at it
			{"norm_topk_prob", `false`, works, ""},
			{"num_local_experts", `4`, works, ""},
			{"num_experts", `4`, refused, ""}, // beside the other name
			{"sliding_window", `2`, works, `{"use_sliding_window": true}`},
			{"use_sliding_window", `true`, works, `{"sliding_window": 2}`},
		}),
	} {
		configFields[name] = list
	}
}

// A loss adds what balances experts where transformers does, times the same number.
func TestBalance(t *testing.T) {
	for name, want := range map[string]float64{
		"mixtral": 0.001, "qwen2_moe": 0.001, "qwen3_moe": 0.001, "gpt_oss": 0.001, "olmoe": 0.01, "glm4_moe": 0, "deepseek_v2": 0, "deepseek_v3": 0,
	} {
		text, err := os.ReadFile(filepath.Join("testdata", name, configFile))
		if err != nil {
			t.Fatal(err)
		}
		config := parseFields(string(text))
		delete(config, "router_aux_loss_coef")
		config["output_router_logits"] = json.RawMessage("true")
		_, a, err := describe([]byte(textOf(config)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if have := a.decoder.BalanceFactor; have != want {
			t.Errorf("the loss of %s adds %v of the balance, want %v", name, have, want)
		}
	}
}
