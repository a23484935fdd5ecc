package pretrained

import (
	"encoding/json"
	"slices"
	"strings"
)

// The fields of models that see images; fields_test.go tests them.

// backboneFields are those of DINOv2 and DINOv3 that say which layers a detector would read, and
// what both have.
var backboneFields = []configField{
	{"apply_layernorm", `false`, idle, ""},
	{"drop_path_rate", `0.1`, idle, ""}, // of training
	{"hidden_act", `"gelu_new"`, works, `{"use_swiglu_ffn": false}`},
	{"hidden_act", `"mish"`, refused, ""},
	{"hidden_size", `48`, works, ""},
	{"image_size", `[8, 16]`, refused, ""},
	{"layer_norm_eps", `0.1`, works, ""},
	{"layerscale_value", `2`, idle, ""}, // of parameters that are loaded
	{"num_attention_heads", `2`, works, ""},
	{"num_channels", `3`, works, ""},
	{"num_hidden_layers", `1`, works, ""},
	{"out_features", `["stage2"]`, idle, ""},
	{"out_indices", `[2]`, idle, ""},
	{"patch_size", `2`, works, ""},
	{"patch_size", `5`, refused, ""},
	{"reshape_hidden_states", `false`, idle, ""},
	{"stage_names", `["stem"]`, idle, ""},
}

// dinov2Fields are those of DINOv2 with and without registers.
var dinov2Fields = slices.Concat(backboneFields, []configField{
	{"attention_probs_dropout_prob", `0.5`, works, ""},
	{"hidden_dropout_prob", `0.5`, refused, ""},
	{"image_size", `16`, works, ""},
	{"mlp_ratio", `3`, works, ""},
	{"qkv_bias", `false`, works, ""},
})

// sideFields are those of either tower of CLIP and SigLIP.
var sideFields = []configField{
	{"attention_dropout", `0.5`, works, ""},
	{"hidden_act", `"silu"`, works, ""},
	{"hidden_act", `"mish"`, refused, ""},
	{"hidden_size", `48`, works, ""},
	{"initializer_factor", `2`, idle, ""},
	{"initializer_range", `2`, idle, ""},
	{"intermediate_size", `28`, works, ""},
	{"is_decoder", `true`, refused, ""},
	{"layer_norm_eps", `0.1`, works, ""},
	{"num_attention_heads", `2`, works, ""},
	{"num_hidden_layers", `1`, works, ""},
	{"projection_dim", `7`, idle, ""}, // of a tower alone
}

var textSideFields = slices.Concat(sideFields, []configField{
	{"bos_token_id", `3`, idle, ""},
	{"max_position_embeddings", `24`, works, ""},
	{"pad_token_id", `3`, idle, ""},
	{"vocab_size", `47`, works, ""},
})

var imageSideFields = slices.Concat(sideFields, []configField{
	{"image_size", `16`, works, ""},
	{"num_channels", `3`, works, ""},
	{"patch_size", `2`, works, ""},
	{"patch_size", `5`, refused, ""},
})

// within is a list of fields of an object in the config.
func within(object string, list []configField) []configField {
	list = slices.Clone(list)
	for i := range list {
		list[i].name = object + "." + list[i].name
	}
	return list
}

// change gives a field, which may be one of an object in the config, another value.
func change(config fields, name, value string) {
	object, inner, nested := strings.Cut(name, ".")
	if nested {
		of := parseFields(string(config[object]))
		of[inner] = json.RawMessage(value)
		name, value = object, textOf(of)
	}
	config[name] = json.RawMessage(value)
}

func init() {
	configFields["clip"] = slices.Concat(within("text_config", textSideFields), within("vision_config", imageSideFields), []configField{
		{"architectures", `["CLIPForImageClassification"]`, refused, ""},
		{"initializer_factor", `2`, idle, ""},
		{"logit_scale_init_value", `2`, idle, ""}, // of a parameter that is loaded
		{"projection_dim", `7`, works, ""},
		{"text_config.eos_token_id", `9`, works, ""},
		{"text_config.eos_token_id", `[7]`, refused, ""},
		{"text_config_dict", `{"hidden_size": 24}`, works, ""}, // other fields are the usual then
		{"text_config_dict", `null`, idle, ""},
		{"vision_config_dict", `{"hidden_size": 24}`, works, ""},
	})
	configFields["gemma3-images"] = []configField{
		{"architectures", `["Gemma3ForSequenceClassification"]`, refused, ""},
		{"boi_token_id", `3`, idle, ""}, // these are of images
		{"boi_token_index", `3`, idle, ""},
		{"eoi_token_index", `3`, idle, ""},
		{"image_token_index", `3`, idle, ""},
		{"mm_tokens_per_image", `3`, idle, ""},
		{"text_config", `null`, refused, ""},
		{"text_config.final_logit_softcapping", `2`, refused, ""},
		{"text_config.head_dim", `4`, works, ""},
		{"text_config.mystery", `4`, refused, ""},
		{"text_config.sliding_window", `2`, works, ""},
		{"text_config.use_bidirectional_attention", `true`, refused, ""},
		{"text_config.vocab_size", `47`, works, ""},
		{"tie_word_embeddings", `false`, works, ""}, // and the head is missing
		{"vision_config", `{}`, idle, ""},
	}
	configFields["siglip"] = slices.Concat(within("text_config", textSideFields), within("vision_config", imageSideFields), []configField{
		{"initializer_factor", `2`, idle, ""},
		{"text_config.eos_token_id", `9`, idle, ""},
		{"text_config.projection_size", `24`, works, ""},
		{"vision_config.vision_use_head", `false`, refused, ""},
	})
	configFields["dinov2"] = slices.Concat(dinov2Fields, []configField{
		{"use_mask_token", `false`, works, ""},
		{"use_swiglu_ffn", `true`, works, ""},
	})
	configFields["dinov2-classes"] = []configField{
		{"id2label", `{"0": "a"}`, works, ""},
		{"num_labels", `5`, works, ""},
		{"use_mask_token", `true`, works, ""},
		{"use_swiglu_ffn", `false`, works, ""},
	}
	configFields["dinov2-registers"] = slices.Concat(dinov2Fields, []configField{
		{"num_register_tokens", `2`, works, ""},
		{"num_register_tokens", `0`, refused, ""},
	})
	configFields["dinov3"] = slices.Concat(backboneFields, []configField{
		{"attention_dropout", `0.5`, works, ""},
		{"image_size", `32`, idle, ""}, // images tell their own
		{"intermediate_size", `28`, works, ""},
		{"key_bias", `true`, works, ""},
		{"mlp_bias", `false`, works, ""},
		{"num_attention_heads", `4`, refused, ""},
		{"num_register_tokens", `3`, works, ""},
		{"pos_embed_jitter", `2`, idle, ""}, // these three move places at random where transformers trains
		{"pos_embed_rescale", `3`, idle, ""},
		{"pos_embed_shift", `2`, idle, ""},
		{"proj_bias", `false`, works, ""},
		{"query_bias", `false`, works, ""},
		{"rope_theta", `100`, works, ""},
		{"use_gated_mlp", `true`, works, ""},
		{"value_bias", `false`, works, ""},
	})
}
