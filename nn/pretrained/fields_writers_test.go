package pretrained

import "slices"

// The fields of models that read a source and write a text; fields_test.go tests them.

// writerFields are what all have.
var writerFields = []configField{
	{"architectures", `["OtherModel"]`, refused, ""},
	{"classifier_dropout", `0.5`, idle, ""}, // of a head for classes
	{"d_model", `48`, works, ""},
	{"decoder_start_token_id", `3`, idle, ""}, // what is written begins with what one gives
	{"eos_token_id", `3`, idle, ""},
	{"is_decoder", `true`, refused, ""},
	{"is_encoder_decoder", `false`, refused, ""},
	{"pad_token_id", `3`, idle, ""},
	{"vocab_size", `47`, works, ""},
}

// fairseqFields are those of BART, Marian and Whisper.
var fairseqFields = slices.Concat(writerFields, []configField{
	{"activation_dropout", `0.5`, works, ""},
	{"activation_function", `"relu"`, works, ""},
	{"activation_function", `"mish"`, refused, ""},
	{"attention_dropout", `0.5`, works, ""},
	{"bos_token_id", `3`, idle, ""},
	{"decoder_attention_heads", `2`, works, ""},
	{"decoder_ffn_dim", `20`, works, ""},
	{"decoder_layerdrop", `0.5`, idle, ""}, // of training
	{"decoder_layers", `1`, works, ""},
	{"dropout", `0.5`, works, ""},
	{"encoder_attention_heads", `2`, works, ""},
	{"encoder_ffn_dim", `28`, works, ""},
	{"encoder_layerdrop", `0.5`, idle, ""}, // of training
	{"encoder_layers", `1`, works, ""},
	{"forced_eos_token_id", `3`, idle, ""},
	{"init_std", `2`, idle, ""},
	{"normalize_before", `true`, refused, ""},
	{"num_hidden_layers", `1`, refused, ""}, // beside the other name
	{"num_hidden_layers", `1`, works, `{"encoder_layers": null}`},
	{"tie_word_embeddings", `false`, refused, ""},
})

func init() {
	configFields["t5"] = slices.Concat(writerFields, []configField{
		{"d_ff", `28`, works, ""},
		{"d_kv", `4`, works, ""},
		{"dense_act_fn", `"silu"`, works, ""},
		{"dense_act_fn", `"mish"`, refused, ""},
		{"dropout_rate", `0.5`, works, ""},
		{"feed_forward_proj", `"gated-silu"`, works, `{"dense_act_fn": null, "is_gated_act": "left out"}`},
		{"feed_forward_proj", `"gelu"`, works, `{"dense_act_fn": null, "is_gated_act": "left out"}`},
		{"feed_forward_proj", `"gated-gelu-new"`, refused, ""},
		{"initializer_factor", `2`, idle, ""},
		{"is_gated_act", `true`, works, ""},
		{"layer_norm_epsilon", `0.1`, works, ""},
		{"n_positions", `4`, works, ""}, // longer sources are refused
		{"num_decoder_layers", `1`, works, ""},
		{"num_heads", `2`, works, ""},
		{"num_layers", `1`, works, ""},
		{"relative_attention_max_distance", `7`, works, ""},
		{"relative_attention_num_buckets", `12`, works, ""},
		{"scale_decoder_outputs", `false`, works, ""},
		{"tie_word_embeddings", `false`, works, `{"scale_decoder_outputs": "left out"}`},
	})
	configFields["bart"] = slices.Concat(fairseqFields, []configField{
		{"max_position_embeddings", `24`, works, ""},
		{"normalize_embedding", `false`, refused, ""},
		{"scale_embedding", `true`, works, ""},
		{"static_position_embeddings", `true`, refused, ""},
	})
	configFields["marian"] = slices.Concat(without(fairseqFields, "vocab_size"), []configField{
		{"vocab_size", `47`, works, `{"decoder_vocab_size": null}`},
		{"decoder_vocab_size", `47`, refused, ""},
		{"max_position_embeddings", `4`, works, ""}, // longer texts are refused
		{"normalize_embedding", `true`, refused, ""},
		{"scale_embedding", `false`, works, ""},
		{"share_encoder_decoder_embeddings", `false`, refused, ""},
		{"static_position_embeddings", `false`, refused, ""},
	})
	configFields["whisper"] = slices.Concat(fairseqFields, []configField{
		{"apply_spec_augment", `true`, idle, ""},   // of training
		{"begin_suppress_tokens", `[3]`, idle, ""}, // of writing
		{"classifier_proj_size", `3`, idle, ""},
		{"forced_decoder_ids", `[[1, 3]]`, idle, ""},
		{"mask_feature_length", `3`, idle, ""}, // these are of what is hidden where apply_spec_augment asks for it
		{"mask_feature_min_masks", `3`, idle, ""},
		{"mask_feature_prob", `0.5`, idle, ""},
		{"mask_time_length", `3`, idle, ""},
		{"mask_time_min_masks", `3`, idle, ""},
		{"mask_time_prob", `0.5`, idle, ""},
		{"max_source_positions", `7`, works, ""},
		{"max_target_positions", `24`, works, ""},
		{"median_filter_width", `3`, idle, ""},
		{"num_mel_bins", `7`, works, ""},
		{"scale_embedding", `true`, idle, ""}, // transformers reads it and scales nothing
		{"suppress_tokens", `[3]`, idle, ""},
		{"use_weighted_layer_sum", `true`, idle, ""}, // of a head for classes
	})
	configFields["mt5"] = slices.Concat(without(configFields["t5"], "feed_forward_proj", "is_gated_act", "scale_decoder_outputs", "tie_word_embeddings"), []configField{
		{"feed_forward_proj", `"relu"`, works, `{"dense_act_fn": null, "is_gated_act": "left out"}`},
		{"feed_forward_proj", `"gelu"`, works, `{"dense_act_fn": null, "is_gated_act": "left out"}`},
		{"feed_forward_proj", `"gated-gelu-new"`, refused, ""},
		{"is_gated_act", `false`, works, ""},
		{"scale_decoder_outputs", `true`, idle, ""}, // transformers does not look at it
		{"tie_word_embeddings", `false`, idle, ""},  // the files say it
	})
}
