package pretrained

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/nn"
	"gorgonia.org/gorgonia"
)

// A configField is a field of transformers' configs and another value than the usual.
type configField struct {
	name, value string
	effect      effect
	with        string // other fields beside which it has that effect
}

// effect is what becomes of a model whose field has another value.
type effect int

const (
	works   effect = iota // it computes something else, or has other parameters
	refused               // it is an error that names the field
	idle                  // it computes the same
)

// commonFields are what the configs of all families have from transformers' PreTrainedConfig, in
// version 5.23 and before.
var commonFields = []configField{
	{"_attn_implementation_autoset", `true`, idle, ""},
	{"_commit_hash", `"0"`, idle, ""},
	{"_name_or_path", `"other"`, idle, ""},
	{"architectures", `["OtherForMultipleChoice"]`, refused, ""},
	{"attn_implementation", `"eager"`, idle, ""},
	{"chunk_size_feed_forward", `2`, idle, ""}, // saves memory
	{"dtype", `"float16"`, idle, ""},           // the files say what they are
	{"initializer_range", `0.5`, idle, ""},     // of weights that are not loaded
	{"is_encoder_decoder", `true`, refused, ""},
	{"label2id", `{"a": 0}`, idle, ""},
	{"output_attentions", `true`, idle, ""},
	{"output_hidden_states", `true`, idle, ""},
	{"per_layer_config", `{"0": {"hidden_act": "gelu"}}`, refused, ""},
	{"problem_type", `"regression"`, idle, ""}, // of a loss that is the caller's
	{"pruned_heads", `{"0": [1]}`, refused, ""},
	{"quantization_config", `{"bits": 4}`, refused, ""},
	{"return_dict", `false`, idle, ""},
	{"tie_last_hidden_states", `true`, refused, ""},
	{"torch_dtype", `"float16"`, idle, ""},
	{"transformers_version", `"4.0.0"`, idle, ""},
	{"use_cache", `false`, idle, ""},
}

// decoderFields are what the families of Llama's shape have in common.
var decoderFields = []configField{
	{"attention_dropout", `0.5`, works, ""},
	{"bos_token_id", `3`, idle, ""},
	{"eos_token_id", `[3, 4]`, idle, ""},
	{"head_dim", `4`, works, `{"rope_parameters": null}`},
	{"hidden_size", `48`, works, `{"rope_parameters": null}`},
	{"id2label", `{"0": "a"}`, idle, ""}, // of heads for classes
	{"intermediate_size", `28`, works, ""},
	{"max_position_embeddings", `2`, works, `{"rope_parameters": null}`}, // longer texts are refused
	{"num_attention_heads", `8`, works, `{"rope_parameters": null}`},
	{"num_hidden_layers", `1`, works, `{"layer_types": null}`},
	{"num_key_value_heads", `1`, works, ""},
	{"num_labels", `3`, refused, ""},
	{"pad_token_id", `3`, idle, ""},
	{"partial_rotary_factor", `0.5`, refused, ""},
	{"rms_norm_eps", `0.1`, works, ""},
	{"rope_parameters", `{"rope_type": "linear", "factor": 2.0}`, works, `{"rope_parameters": {"rope_type": "default"}}`},
	{"rope_scaling", `{"type": "linear", "factor": 2.0}`, works, `{"rope_parameters": null}`},
	{"rope_scaling", `{"type": "linear", "factor": 2.0}`, refused, `{"rope_parameters": {"rope_type": "default"}}`},
	{"rope_theta", `10`, works, `{"rope_parameters": null}`},
	{"vocab_size", `47`, works, ""},
}

// hiddenAct is of the families that do not call it hidden_activation.
var hiddenAct = []configField{{"hidden_act", `"gelu"`, works, ""}, {"hidden_act", `"mish"`, refused, ""}}

// windows are of the families that have layers of two types, if they are asked for.
var windows = []configField{
	{"layer_types", `["sliding_attention", "full_attention"]`, works, `{"use_sliding_window": true, "sliding_window": 2, "layer_types": ["full_attention", "full_attention"]}`},
	{"layer_types", `["full_attention", "linear_attention"]`, refused, ""},
	{"sliding_window", `2`, works, `{"use_sliding_window": true, "layer_types": ["full_attention", "sliding_attention"], "sliding_window": 4}`},
	{"use_sliding_window", `true`, works, `{"sliding_window": 2, "max_window_layers": 0, "layer_types": null, "use_sliding_window": false}`},
	{"rope_parameters", `{"full_attention": {"rope_type": "linear", "factor": 2.0}}`, refused, ""},
}

// gemmas are what Gemma 2 and 3 have.
var gemmas = []configField{
	{"attention_bias", `true`, works, ""},
	{"cache_implementation", `"hybrid"`, idle, ""},
	{"final_logit_softcapping", `1`, works, ""},
	{"hidden_act", `"silu"`, idle, ""}, // hidden_activation is what counts
	{"hidden_activation", `"silu"`, works, ""},
	{"hidden_activation", `"mish"`, refused, ""},
	{"layer_types", `["full_attention", "full_attention"]`, works, ""},
	{"query_pre_attn_scalar", `8`, works, ""},
	{"sliding_window", `2`, works, ""},
	{"sliding_window", `null`, refused, ""},
	{"tie_word_embeddings", `false`, works, ""},
}

// encoderFields are what BERT and RoBERTa have.
var encoderFields = []configField{
	{"add_cross_attention", `true`, refused, ""},
	{"attention_probs_dropout_prob", `0.5`, works, ""},
	{"bos_token_id", `3`, idle, ""},
	{"classifier_dropout", `0.5`, works, ""},
	{"eos_token_id", `3`, idle, ""},
	{"hidden_act", `"silu"`, works, ""},
	{"hidden_act", `"mish"`, refused, ""},
	{"hidden_dropout_prob", `0.5`, works, ""},
	{"hidden_size", `48`, works, ""},
	{"id2label", `{"0": "a"}`, works, ""},
	{"intermediate_size", `28`, works, ""},
	{"is_decoder", `true`, refused, ""},
	{"layer_norm_eps", `0.1`, works, ""},
	{"max_position_embeddings", `24`, works, ""},
	{"num_attention_heads", `2`, works, ""},
	{"num_hidden_layers", `1`, works, ""},
	{"num_labels", `5`, works, ""},
	{"position_embedding_type", `"relative_key"`, refused, ""},
	{"tie_word_embeddings", `false`, idle, ""}, // of a head for masked tokens
	{"type_vocab_size", `3`, works, ""},
	{"vocab_size", `47`, works, ""},
}

// configFields are the fields of each family, by a model in testdata.
var configFields = map[string][]configField{
	"gpt2": {
		{"activation_function", `"gelu"`, works, ""},
		{"activation_function", `"gelu_accurate"`, idle, ""}, // another name of gelu_new
		{"activation_function", `"gelu_python"`, works, ""},
		{"activation_function", `"mish"`, refused, ""},
		{"add_cross_attention", `true`, refused, ""},
		{"attn_pdrop", `0.5`, works, ""},
		{"bos_token_id", `3`, idle, ""},
		{"embd_pdrop", `0.5`, works, ""},
		{"eos_token_id", `3`, idle, ""},
		{"hidden_size", `48`, works, `{"n_embd": null, "hidden_size": 24}`},
		{"hidden_size", `48`, refused, ""}, // beside the other name
		{"id2label", `{"0": "a"}`, idle, ""},
		{"layer_norm_epsilon", `0.1`, works, ""},
		{"n_ctx", `4`, idle, ""}, // transformers does not look at it
		{"n_embd", `48`, works, ""},
		{"n_head", `4`, works, ""},
		{"n_inner", `20`, works, ""},
		{"n_layer", `1`, works, ""},
		{"n_positions", `20`, works, ""},
		{"pad_token_id", `3`, idle, ""},
		{"reorder_and_upcast_attn", `true`, idle, ""}, // the scores are float32 anyway
		{"resid_pdrop", `0.5`, works, ""},
		{"scale_attn_by_inverse_layer_idx", `true`, works, ""},
		{"scale_attn_weights", `false`, works, ""},
		{"summary_activation", `"tanh"`, idle, ""}, // these five are of a head for choices, whose tensors are refused
		{"summary_first_dropout", `0.5`, idle, ""},
		{"summary_proj_to_labels", `false`, idle, ""},
		{"summary_type", `"mean"`, idle, ""},
		{"summary_use_proj", `false`, idle, ""},
		{"tie_word_embeddings", `false`, works, ""},
		{"vocab_size", `47`, works, ""},
	},
	"llama3": slices.Concat(decoderFields, hiddenAct, []configField{
		{"attention_bias", `true`, works, ""},
		{"mlp_bias", `true`, works, ""},
		{"pretraining_tp", `2`, idle, ""}, // the sums are the same
		{"sliding_window", `2`, refused, ""},
		{"tie_word_embeddings", `false`, works, ""},
	}, scalings),
	"mistral": slices.Concat(decoderFields, hiddenAct, []configField{
		{"attention_bias", `true`, refused, ""},
		{"layer_types", `["sliding_attention", "full_attention"]`, refused, ""},
		{"sliding_window", `2`, works, ""},
		{"sliding_window", `null`, works, ""},
		{"tie_word_embeddings", `true`, works, ""},
	}),
	"qwen2": slices.Concat(decoderFields, hiddenAct, windows, []configField{
		{"attention_bias", `true`, refused, ""},
		{"max_window_layers", `2`, works, `{"layer_types": null}`},
		{"tie_word_embeddings", `false`, works, ""},
	}),
	"qwen3": slices.Concat(decoderFields, hiddenAct, windows, []configField{
		{"attention_bias", `true`, works, ""},
		{"max_window_layers", `2`, works, `{"use_sliding_window": true, "sliding_window": 2, "max_window_layers": 1, "layer_types": null}`},
		{"tie_word_embeddings", `true`, works, ""},
	}),
	"gemma2": slices.Concat(decoderFields, gemmas, []configField{
		{"attn_logit_softcapping", `1`, works, ""},
		{"use_bidirectional_attention", `true`, refused, ""},
	}),
	"gemma3": slices.Concat(without(decoderFields, "rope_parameters", "rope_scaling"), gemmas, []configField{
		{"_sliding_window_pattern", `1`, idle, ""}, // layer_types says it
		{"attn_logit_softcapping", `1`, refused, ""},
		{"rope_scaling", `{"type": "linear", "factor": 2.0}`, works, `{"rope_parameters": null}`},
		{"rope_scaling", `{"type": "linear", "factor": 2.0}`, refused, ""},
		{"rope_local_base_freq", `10`, works, `{"rope_parameters": null}`},
		{"rope_parameters", `{"full_attention": {"rope_type": "default"}}`, works, ""},
		{"rope_parameters", `{"sliding_attention": {"rope_type": "linear", "factor": 3.0}}`, works, `{"rope_parameters": null}`},
		{"rope_parameters", `{"rope_type": "linear", "factor": 3.0}`, refused, ""},
		{"sliding_window_pattern", `1`, works, `{"layer_types": null}`},
		{"use_bidirectional_attention", `true`, refused, `{"architectures": ["Gemma3ForCausalLM"]}`},
	}),
	"gemma3-both": {
		{"architectures", `["Gemma3ForCausalLM"]`, refused, ""},
		{"num_hidden_layers", `1`, works, `{"layer_types": null}`},
		{"sliding_window", `2`, works, ""},
		{"tie_word_embeddings", `false`, refused, ""},
		{"use_bidirectional_attention", `false`, works, ""},
	},
	"phi3": slices.Concat(without(decoderFields, "partial_rotary_factor"), hiddenAct, []configField{
		{"attention_bias", `true`, refused, ""},
		{"embd_pdrop", `0.5`, idle, ""}, // transformers does not look at it
		{"original_max_position_embeddings", `3`, works, ""},
		{"partial_rotary_factor", `0.4`, works, `{"rope_parameters": null}`},
		{"resid_pdrop", `0.5`, works, ""},
		{"sliding_window", `2`, works, ""},
		{"tie_word_embeddings", `true`, works, ""},
	}),
	"olmo2": slices.Concat(decoderFields, hiddenAct, []configField{
		{"attention_bias", `true`, works, ""},
		{"clip_qkv", `1`, refused, ""},
		{"tie_word_embeddings", `true`, works, ""},
	}),
	"smollm3": slices.Concat(decoderFields, hiddenAct, windows, []configField{
		{"attention_bias", `true`, works, ""},
		{"max_window_layers", `1`, idle, ""}, // transformers does not look at it
		{"mlp_bias", `true`, works, ""},
		{"no_rope_layer_interval", `1`, works, `{"no_rope_layers": null}`},
		{"no_rope_layers", `[0, 1]`, works, ""},
		{"pretraining_tp", `2`, idle, ""},
		{"tie_word_embeddings", `false`, works, ""},
	}),
	"bert-classes":    slices.Concat(encoderFields, []configField{{"pad_token_id", `3`, idle, ""}}),
	"roberta-masked":  {{"tie_word_embeddings", `false`, works, ""}},
	"roberta-classes": slices.Concat(encoderFields, []configField{{"pad_token_id", `3`, works, ""}}),
	"electra-classes": slices.Concat(without(encoderFields, "hidden_size"), []configField{
		{"embedding_size", `12`, works, ""},
		{"hidden_size", `48`, works, ""},
		{"pad_token_id", `3`, idle, ""},
		{"summary_activation", `"tanh"`, idle, ""}, // these four are of a head for choices
		{"summary_last_dropout", `0.5`, idle, ""},
		{"summary_type", `"last"`, idle, ""},
		{"summary_use_proj", `false`, idle, ""},
	}),
	"albert-classes": slices.Concat(without(
		encoderFields, "add_cross_attention", "classifier_dropout", "hidden_size", "is_decoder", "num_hidden_layers",
	), []configField{
		{"classifier_dropout", `0.5`, refused, ""}, // classifier_dropout_prob is its name here
		{"classifier_dropout_prob", `0.5`, works, ""},
		{"embedding_size", `16`, works, ""},
		{"embedding_size", `24`, refused, ""},
		{"gap_size", `1`, idle, ""}, // transformers does not look at these three
		{"net_structure_type", `1`, idle, ""},
		{"num_memory_blocks", `1`, idle, ""},
		{"hidden_size", `48`, works, ""},
		{"inner_group_num", `2`, refused, ""},
		{"num_hidden_groups", `3`, works, ""},
		{"num_hidden_groups", `2`, refused, ""},
		{"num_hidden_layers", `1`, works, ""},
		{"pad_token_id", `3`, idle, ""},
	}),
	"mpnet-classes": slices.Concat(without(encoderFields, "classifier_dropout", "type_vocab_size"), []configField{
		{"classifier_dropout", `0.5`, idle, ""}, // transformers does not look at it
		{"pad_token_id", `3`, idle, ""},         // it is 1, whatever the config says
		{"relative_attention_num_buckets", `16`, refused, ""},
		{"type_vocab_size", `3`, idle, ""}, // transformers does not look at it
	}),
	"modernbert-masked": {
		{"attention_bias", `true`, refused, ""},
		{"attention_dropout", `0.5`, refused, ""},
		{"classifier_activation", `"gelu"`, works, ""},
		{"classifier_bias", `true`, refused, ""},
		{"classifier_dropout", `0.5`, idle, ""},    // of heads for classes
		{"classifier_pooling", `"mean"`, idle, ""}, // of heads for classes
		{"decoder_bias", `false`, works, ""},
		{"deterministic_flash_attn", `true`, idle, ""},
		{"embedding_dropout", `0.5`, works, ""},
		{"global_attn_every_n_layers", `1`, works, `{"layer_types": null}`},
		{"global_rope_theta", `10`, works, `{"rope_parameters": null}`},
		{"hidden_activation", `"silu"`, works, ""},
		{"hidden_activation", `"relux"`, refused, ""},
		{"hidden_size", `48`, works, ""},
		{"initializer_cutoff_factor", `3`, idle, ""},
		{"intermediate_size", `28`, works, ""},
		{"layer_norm_eps", `0.1`, idle, ""}, // norm_eps is what counts
		{"layer_types", `["full_attention", "full_attention", "full_attention"]`, works, ""},
		{"layer_types", `["full_attention", "linear_attention", "full_attention"]`, refused, ""},
		{"layer_types", `["full_attention"]`, refused, ""},
		{"local_attention", `2`, works, ""},
		{"local_rope_theta", `10`, works, `{"rope_parameters": null}`},
		{"max_position_embeddings", `4`, works, ""}, // longer texts are refused
		{"mlp_bias", `true`, refused, ""},
		{"mlp_dropout", `0.5`, refused, ""},
		{"norm_bias", `true`, refused, ""},
		{"norm_eps", `0.1`, works, ""},
		{"num_attention_heads", `2`, works, ""},
		{"num_hidden_layers", `1`, works, `{"layer_types": null}`},
		{"pad_token_id", `3`, idle, ""},
		{"position_embedding_type", `"relative_key"`, idle, ""}, // transformers does not look at it
		{"reference_compile", `true`, idle, ""},
		{"rope_parameters", `{"full_attention": {"rope_type": "default", "rope_theta": 10}}`, works, ""},
		{"rope_scaling", `{"rope_type": "linear", "factor": 2}`, refused, ""},
		{"sparse_pred_ignore_index", `3`, idle, ""},
		{"sparse_prediction", `true`, idle, ""}, // of a loss that is the caller's
		{"tie_word_embeddings", `false`, works, ""},
		{"vocab_size", `47`, works, ""},
	},
	"nomic-classes": slices.Concat(without(encoderFields, "add_cross_attention", "hidden_act", "is_decoder", "num_attention_heads", "position_embedding_type", "hidden_size", "max_position_embeddings"), []configField{
		{"activation_function", `"gelu"`, refused, ""},
		{"causal", `true`, refused, ""},
		{"dense_seq_output", `true`, idle, ""}, // transformers does not look at these nine
		{"fused_bias_fc", `true`, idle, ""},
		{"fused_dropout_add_ln", `true`, idle, ""},
		{"max_trained_positions", `3`, idle, ""},
		{"pad_vocab_size_multiple", `3`, idle, ""},
		{"reorder_and_upcast_attn", `true`, idle, ""},
		{"summary_type", `"last"`, idle, ""},
		{"use_flash_attn", `true`, idle, ""},
		{"use_xentropy", `true`, idle, ""},
		{"embd_pdrop", `0.5`, refused, ""},
		{"head_dim", `4`, works, ""},
		{"hidden_act", `"gelu"`, works, ""},
		{"hidden_act", `"mish"`, refused, ""},
		{"hidden_size", `48`, works, ""},
		{"max_position_embeddings", `4`, works, ""}, // longer texts are refused
		{"mlp_fc1_bias", `true`, refused, ""},
		{"mlp_fc2_bias", `true`, refused, ""},
		{"n_embd", `48`, refused, ""}, // beside the other name
		{"n_embd", `48`, works, `{"hidden_size": null, "n_embd": 24}`},
		{"n_layer", `1`, works, `{"num_hidden_layers": null, "n_layer": 2}`},
		{"n_positions", `8192`, idle, ""},
		{"n_positions", `4`, works, `{"max_position_embeddings": null, "n_positions": 16}`},
		{"num_attention_heads", `2`, works, ""},
		{"pad_token_id", `3`, idle, ""},
		{"parallel_block", `true`, refused, ""},
		{"parallel_block_tied_norm", `true`, refused, ""},
		{"prenorm", `true`, refused, ""},
		{"qkv_proj_bias", `true`, refused, ""},
		{"rope_parameters", `{"rope_type": "linear", "factor": 2.0}`, works, ""},
		{"rotary_emb_base", `10`, works, `{"rope_parameters": null}`},
		{"rotary_emb_fraction", `0.5`, refused, ""},
		{"rotary_emb_interleaved", `true`, refused, ""},
		{"rotary_scaling_factor", `2`, refused, ""},
		{"scale_attn_by_inverse_layer_idx", `true`, refused, ""},
		{"scale_attn_weights", `false`, refused, ""},
		{"use_rms_norm", `true`, refused, ""},
	}),
	"deberta-classes": slices.Concat(without(
		encoderFields, "add_cross_attention", "classifier_dropout", "hidden_size", "is_decoder", "max_position_embeddings", "position_embedding_type",
	), []configField{
		{"attention_head_size", `12`, refused, ""},
		{"classifier_dropout", `0.5`, refused, ""}, // cls_dropout is its name here
		{"cls_dropout", `0.5`, works, ""},
		{"conv_act", `"gelu"`, idle, ""}, // of a convolution, which nothing asks for
		{"conv_groups", `2`, idle, ""},
		{"conv_kernel_size", `3`, refused, ""},
		{"embedding_size", `12`, refused, ""},
		{"hidden_size", `48`, refused, ""},            // beside the other width of the pooler
		{"legacy", `false`, idle, ""},                 // of the head for masked tokens
		{"max_position_embeddings", `4`, refused, ""}, // fewer than buckets need
		{"max_position_embeddings", `12`, works, ""},
		{"max_relative_positions", `12`, works, ""},
		{"max_relative_positions", `4`, refused, ""},
		{"norm_rel_ebd", `"none"`, works, ""},
		{"norm_rel_ebd", `"layer_norm|other"`, refused, ""},
		{"pad_token_id", `3`, idle, ""},
		{"pooler_dropout", `0.5`, refused, ""},
		{"pooler_hidden_act", `"tanh"`, works, ""},
		{"pooler_hidden_size", `12`, refused, ""},
		{"pos_att_type", `"c2p"`, refused, ""},
		{"pos_att_type", `["p2c", "c2p"]`, idle, ""}, // the same in another form
		{"position_biased_input", `true`, works, ""},
		{"position_buckets", `6`, works, ""},
		{"position_buckets", `-1`, works, ""},
		{"position_buckets", `7`, refused, ""},
		{"relative_attention", `false`, refused, ""},
		{"share_att_key", `false`, refused, ""},
	}),
	"distilbert-classes": {
		{"activation", `"silu"`, works, ""},
		{"activation", `"relux"`, refused, ""},
		{"attention_dropout", `0.5`, works, ""},
		{"dim", `48`, works, ""},
		{"dropout", `0.5`, works, ""},
		{"hidden_dim", `28`, works, ""},
		{"hidden_size", `48`, refused, ""}, // beside the other name
		{"hidden_size", `48`, works, `{"dim": null, "hidden_size": 24}`},
		{"id2label", `{"0": "a"}`, works, ""},
		{"max_position_embeddings", `24`, works, ""},
		{"n_heads", `2`, works, ""},
		{"n_layers", `1`, works, ""},
		{"num_labels", `5`, works, ""},
		{"pad_token_id", `3`, idle, ""},
		{"qa_dropout", `0.5`, idle, ""},
		{"seq_classif_dropout", `0.5`, works, ""},
		{"sinusoidal_pos_embds", `true`, idle, ""}, // of positions before they are loaded
		{"tie_word_embeddings", `false`, idle, ""},
		{"vocab_size", `47`, works, ""},
	},
	"vit-classes": {
		{"attention_probs_dropout_prob", `0.5`, works, ""},
		{"encoder_stride", `8`, idle, ""}, // of a head that repaints images
		{"hidden_act", `"silu"`, works, ""},
		{"hidden_act", `"mish"`, refused, ""},
		{"hidden_dropout_prob", `0.5`, works, ""},
		{"hidden_size", `48`, works, `{"pooler_output_size": null}`},
		{"id2label", `{"0": "a"}`, works, ""},
		{"image_size", `16`, works, ""},
		{"image_size", `[8, 16]`, refused, ""},
		{"intermediate_size", `28`, works, ""},
		{"layer_norm_eps", `0.1`, works, ""},
		{"num_attention_heads", `2`, works, ""},
		{"num_channels", `3`, works, ""},
		{"num_hidden_layers", `1`, works, ""},
		{"num_labels", `5`, works, ""},
		{"patch_size", `2`, works, ""},
		{"patch_size", `[4, 2]`, refused, ""},
		{"pooler_act", `"relu"`, idle, ""}, // of a pooler
		{"pooler_output_size", `12`, idle, ""},
		{"qkv_bias", `false`, works, ""},
	},
}

// scalings are the fields of rope_parameters: each of the second object alone changes what the
// first asks for.
var scalings = rotations(
	`{"rope_type": "default", "rope_theta": 10}`, `{"rope_theta": 20, "rope_type": "mrope", "mrope_section": [1]}`,
	`{"rope_type": "linear", "factor": 2}`, `{"factor": 3, "alpha": 2}`,
	`{"rope_type": "dynamic", "factor": 2}`, `{"rope_theta": 20, "alpha": 2}`,
	`{"rope_type": "llama3", "factor": 2, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 16}`,
	`{"factor": 3, "low_freq_factor": 2, "high_freq_factor": 8, "original_max_position_embeddings": 8}`,
	`{"rope_type": "yarn", "factor": 2, "original_max_position_embeddings": 32, "rope_theta": 100, "beta_fast": 2, "beta_slow": 0.5, "truncate": false}`,
	`{"factor": 3, "attention_factor": 2, "beta_fast": 5, "beta_slow": 1, "truncate": true, "original_max_position_embeddings": 64}`,
	`{"rope_type": "yarn", "factor": 2, "mscale": 1, "mscale_all_dim": 0.5}`, `{"mscale": 2, "mscale_all_dim": 2}`,
	`{"rope_type": "longrope", "short_factor": [1, 1, 1], "long_factor": [2, 2, 2], "original_max_position_embeddings": 16}`,
	`{"factor": 3, "attention_factor": 2, "short_factor": [1, 2, 3], "original_max_position_embeddings": 64}`,
)

// rotations makes fields of pairs of objects. What Llama's RoPE does not know is refused.
func rotations(pairs ...string) (list []configField) {
	for pair := range slices.Chunk(pairs, 2) {
		for name, value := range parseFields(pair[1]) {
			object := parseFields(pair[0])
			object[name] = value
			f := configField{"rope_parameters", textOf(object), works, `{"rope_parameters": ` + pair[0] + `}`}
			if slices.Contains([]string{"rope_type", "mrope_section", "alpha"}, name) {
				f.effect = refused
			}
			list = append(list, f)
		}
	}
	return list
}

// without is a list without the fields of some names.
func without(list []configField, names ...string) []configField {
	return slices.DeleteFunc(slices.Clone(list), func(f configField) bool { return slices.Contains(names, f.name) })
}

type fields = map[string]json.RawMessage

func parseFields(text string) fields {
	f := fields{}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			panic(text + ": " + err.Error())
		}
	}
	return f
}

func textOf(f fields) string {
	text, err := json.Marshal(f)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// Every field that transformers knows changes the model, is refused by its name, or changes nothing
// there either.
func TestConfigFields(t *testing.T) {
	for model, list := range configFields {
		t.Run(model, func(t *testing.T) {
			if testing.Short() && model != "gpt2" {
				t.Skip("short")
			}
			text, err := os.ReadFile(filepath.Join("testdata", model, configFile))
			if err != nil {
				t.Fatal(err)
			}
			usual := map[string]outcome{}                     // by what it is with
			if model == "llama3" || model == "bert-classes" { // they are read by what all families share
				list = slices.Concat(commonFields, list)
			}
			for _, f := range list {
				config := parseFields(string(text))
				maps.Copy(config, parseFields(f.with))
				maps.DeleteFunc(config, func(_ string, value json.RawMessage) bool {
					return string(value) == `"left out"`
				})
				before, known := usual[f.with]
				if !known {
					before = outcomeOf(t, model, config)
					if usual[f.with] = before; before.err != nil {
						t.Fatalf("with %s: %v", f.with, before.err)
					}
				}
				change(config, f.name, f.value)
				after := outcomeOf(t, model, config)
				what := f.name + " of " + f.value + " with " + f.with
				switch isSame := after.err == nil && slices.Equal(before.tensors, after.tensors) && slices.Equal(before.results, after.results); {
				case f.effect == refused && (after.err == nil || !strings.Contains(after.err.Error(), "field "+f.name)):
					t.Errorf("%s: %v, want an error that names the field", what, after.err)
				case f.effect != refused && after.err != nil:
					t.Errorf("%s: %v", what, after.err)
				case f.effect == works && isSame:
					t.Errorf("%s changes nothing", what)
				case f.effect == idle && !isSame:
					t.Errorf("%s changes the model", what)
				}
			}
		})
	}
}

// outcome is what a config makes: an error, or tensors and what they compute, in training, with
// dropout.
type outcome struct {
	err     error
	tensors []string
	results []float32
}

func outcomeOf(t *testing.T, model string, config fields) outcome {
	t.Helper()
	m := &Model{config: []byte(textOf(config)), folder: filepath.Join("testdata", model)}
	var o outcome
	if m.family, m.arch, o.err = describe(m.config, Options{}); o.err != nil {
		return o
	}
	for _, l := range m.arch.links {
		o.tensors = append(o.tensors, fmt.Sprint(l.theirs, l.shape))
	}
	var err error
	if m.parameters, err = readFolder(m.folder, m.arch, keeping{}, nil); err != nil {
		return o // the tensors are others, which tells them apart
	}
	s := m.scope()
	results := m.resultsIn(s, model, readGolden(t, model))
	if s.Err() != nil {
		return o // such as of a text that is longer than the context
	}
	machine := gorgonia.NewTapeMachine(s.Graph())
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		t.Fatal(err)
	}
	o.results = results.Node().Value().Data().([]float32)
	return o
}

// resultsIn is what the model makes of the golden input.
func (m *Model) resultsIn(s *nn.Scope, name string, want golden) nn.Tensor {
	switch model := m.arch.build(s).(type) {
	case *nn.LanguageModel:
		if want.Mask != nil {
			return classesOf(s, model, want)
		}
		return model.Forward(ids(s, "tokens", want.Tokens))
	case *nn.Encoder:
		if want.Images != nil {
			return seen(s, model, want)[0]
		}
		return headsOf(model, name, s, model.ForwardWith(ids(s, "tokens", want.Tokens), want.inputs(s)), want)[0]
	case *nn.EncoderDecoder:
		logits, _ := written(s, model, want)
		return logits
	case *nn.Contrastive:
		outputs, _ := paired(s, model, want)
		return outputs[2]
	default:
		return s.Fail(fmt.Errorf("%T is no known model", model))
	}
}
