package pretrained

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stheno-ml/stheno/safetensors"
	"gorgonia.org/tensor"
)

// published are the configs of models on the hub, as their authors wrote them, and how many
// parameters those have.
var published = []struct {
	name   string
	count  int
	config string
}{
	{"gpt2", 124_439_808, `{"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
		"embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024,
		"n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": null,
		"summary_first_dropout": 0.1, "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
		"task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}}, "vocab_size": 50257}`},
	{"Llama-3.2-1B", 1_235_814_400, `{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 128000,
		"eos_token_id": 128001, "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
		"max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16,
		"num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
		"low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
		"tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.45.0.dev0", "use_cache": true, "vocab_size": 128256}`},
	{"SmolLM2-135M", 134_515_008, `{"architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 0,
		"eos_token_id": 0, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.041666666666666664, "intermediate_size": 1536,
		"max_position_embeddings": 8192, "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3,
		"pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null, "rope_theta": 100000,
		"tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 49152}`},
	{"Mistral-7B-v0.1", 7_241_732_096, `{"architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
		"hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
		"num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0,
		"sliding_window": 4096, "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 32000}`},
	{"Qwen2.5-0.5B", 494_032_768, `{"architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151643,
		"hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864, "max_position_embeddings": 32768,
		"max_window_layers": 24, "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
		"rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
		"use_cache": true, "use_sliding_window": false, "vocab_size": 151936}`},
	{"Qwen3-0.6B", 596_049_920, `{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "head_dim": 128,
		"hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960, "max_window_layers": 28,
		"model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
		"rope_scaling": null, "rope_theta": 1000000, "sliding_window": null, "tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936}`},
	{"gemma-2-2b", 2_614_341_888, `{"architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
		"attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1, "final_logit_softcapping": 30.0,
		"head_dim": 256, "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 2304, "intermediate_size": 9216,
		"max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8, "num_hidden_layers": 26, "num_key_value_heads": 4,
		"pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0, "sliding_window": 4096, "vocab_size": 256000}`},
	{"gemma-3-1b-pt", 999_885_952, `{"architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
		"attn_logit_softcapping": null, "cache_implementation": "hybrid", "final_logit_softcapping": null, "head_dim": 256,
		"hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 6912, "max_position_embeddings": 32768,
		"model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1, "query_pre_attn_scalar": 256,
		"rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": 512,
		"sliding_window_pattern": 6, "vocab_size": 262144}`},
	{"Phi-3-mini-4k-instruct", 3_821_079_552, `{"architectures": ["Phi3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
		"auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}, "embd_pdrop": 0.0, "hidden_act": "silu", "hidden_size": 3072,
		"intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "phi3", "num_attention_heads": 32, "num_hidden_layers": 32,
		"num_key_value_heads": 32, "original_max_position_embeddings": 4096, "resid_pdrop": 0.0, "rms_norm_eps": 1e-05, "rope_scaling": null,
		"rope_theta": 10000.0, "sliding_window": 2047, "tie_word_embeddings": false, "vocab_size": 32064}`},
	{"OLMo-2-0425-1B", 1_484_916_736, `{"architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "hidden_act": "silu",
		"hidden_size": 2048, "intermediate_size": 8192, "max_position_embeddings": 4096, "model_type": "olmo2", "num_attention_heads": 16,
		"num_hidden_layers": 16, "num_key_value_heads": 16, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000,
		"tie_word_embeddings": false, "vocab_size": 100352}`},
	{"SmolLM3-3B", 3_075_098_624, `{"architectures": ["SmolLM3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0, "hidden_act": "silu",
		"hidden_size": 2048, "intermediate_size": 11008, "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": false,
		"model_type": "smollm3", "no_rope_layer_interval": 4, "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4,
		"pretraining_tp": 2, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 5000000.0, "sliding_window": null,
		"use_sliding_window": false, "vocab_size": 128256}`},
	{"bert-base-uncased", 109_514_298, `{"architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": false,
		"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
		"layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12,
		"pad_token_id": 0, "position_embedding_type": "absolute", "type_vocab_size": 2, "use_cache": true, "vocab_size": 30522}`},
	{"roberta-base", 124_697_433, `{"architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0, "eos_token_id": 2,
		"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
		"layer_norm_eps": 1e-05, "max_position_embeddings": 514, "model_type": "roberta", "num_attention_heads": 12, "num_hidden_layers": 12,
		"pad_token_id": 1, "type_vocab_size": 1, "vocab_size": 50265}`},
	{"all-MiniLM-L6-v2", 22_713_216, `{"_name_or_path": "nreimers/MiniLM-L6-H384-uncased", "architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1,
		"gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 384,
		"initializer_range": 0.02, "intermediate_size": 1536, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
		"model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 6, "pad_token_id": 0,
		"position_embedding_type": "absolute", "transformers_version": "4.8.2", "type_vocab_size": 2, "use_cache": true,
		"vocab_size": 30522}`},
	{"bge-small-en-v1.5", 33_360_000, `{"_name_or_path": "/root/.cache/torch/sentence_transformers/BAAI_bge-small-en/", "architectures": ["BertModel"],
		"attention_probs_dropout_prob": 0.1, "classifier_dropout": null, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
		"hidden_size": 384, "id2label": {"0": "LABEL_0"}, "initializer_range": 0.02, "intermediate_size": 1536,
		"label2id": {"LABEL_0": 0}, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
		"num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0, "position_embedding_type": "absolute",
		"torch_dtype": "float32", "transformers_version": "4.30.0", "type_vocab_size": 2, "use_cache": true,
		"vocab_size": 30522}`},
	{"multilingual-e5-small", 117_653_760, `{"_name_or_path": "intfloat/multilingual-e5-small", "architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1,
		"classifier_dropout": null, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 384,
		"initializer_range": 0.02, "intermediate_size": 1536, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
		"model_type": "bert", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
		"position_embedding_type": "absolute", "tokenizer_class": "XLMRobertaTokenizer", "torch_dtype": "float32",
		"transformers_version": "4.29.0.dev0", "type_vocab_size": 2, "use_cache": true, "vocab_size": 250037}`},
	{"xlm-roberta-base", 278_295_186, `{"architectures": ["XLMRobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0, "eos_token_id": 2,
		"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
		"intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514, "model_type": "xlm-roberta",
		"num_attention_heads": 12, "num_hidden_layers": 12, "output_past": true, "pad_token_id": 1,
		"position_embedding_type": "absolute", "transformers_version": "4.17.0.dev0", "type_vocab_size": 1, "use_cache": true,
		"vocab_size": 250002}`},
	{"bge-m3", 567_754_752, `{"architectures": ["XLMRobertaModel"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
		"classifier_dropout": null, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 1024,
		"initializer_range": 0.02, "intermediate_size": 4096, "layer_norm_eps": 1e-05, "max_position_embeddings": 8194,
		"model_type": "xlm-roberta", "num_attention_heads": 16, "num_hidden_layers": 24, "output_past": true, "pad_token_id": 1,
		"position_embedding_type": "absolute", "torch_dtype": "float32", "transformers_version": "4.33.0", "type_vocab_size": 1,
		"use_cache": true, "vocab_size": 250002}`},
	{"bge-reranker-base", 278_044_417, `{"architectures": ["XLMRobertaForSequenceClassification"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
		"classifier_dropout": null, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
		"id2label": {"0": "LABEL_0"}, "initializer_range": 0.02, "intermediate_size": 3072, "label2id": {"LABEL_0": 0},
		"layer_norm_eps": 1e-05, "max_position_embeddings": 514, "model_type": "xlm-roberta", "num_attention_heads": 12,
		"num_hidden_layers": 12, "output_past": true, "pad_token_id": 1, "position_embedding_type": "absolute",
		"torch_dtype": "float32", "transformers_version": "4.28.1", "type_vocab_size": 1, "use_cache": true,
		"vocab_size": 250002}`},
	{"camembert-base", 110_655_493, `{"architectures": ["CamembertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 5, "eos_token_id": 6,
		"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
		"intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514, "model_type": "camembert",
		"num_attention_heads": 12, "num_hidden_layers": 12, "output_past": true, "pad_token_id": 1, "type_vocab_size": 1,
		"vocab_size": 32005}`},
	{"distilbert-base-uncased-finetuned-sst-2-english", 66_955_010, `{"activation": "gelu", "architectures": ["DistilBertForSequenceClassification"], "attention_dropout": 0.1, "dim": 768,
		"dropout": 0.1, "finetuning_task": "sst-2", "hidden_dim": 3072, "id2label": {"0": "NEGATIVE", "1": "POSITIVE"},
		"initializer_range": 0.02, "label2id": {"NEGATIVE": 0, "POSITIVE": 1}, "max_position_embeddings": 512,
		"model_type": "distilbert", "n_heads": 12, "n_layers": 6, "output_past": true, "pad_token_id": 0, "qa_dropout": 0.1,
		"seq_classif_dropout": 0.2, "sinusoidal_pos_embds": false, "tie_weights_": true, "vocab_size": 30522}`},
	{"electra-small-generator", 13_546_682, `{"architectures": ["ElectraForMaskedLM"], "attention_probs_dropout_prob": 0.1, "embedding_size": 128,
		"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 256, "initializer_range": 0.02,
		"intermediate_size": 1024, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "electra",
		"num_attention_heads": 4, "num_hidden_layers": 12, "pad_token_id": 0, "summary_activation": "gelu",
		"summary_last_dropout": 0.1, "summary_type": "first", "summary_use_proj": true, "type_vocab_size": 2,
		"vocab_size": 30522}`},
	{"all-mpnet-base-v2", 109_486_464, `{"_name_or_path": "microsoft/mpnet-base", "architectures": ["MPNetModel"], "attention_probs_dropout_prob": 0.1,
		"bos_token_id": 0, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
		"initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
		"model_type": "mpnet", "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
		"relative_attention_num_buckets": 32, "transformers_version": "4.8.2", "vocab_size": 30527}`},
	{"roberta-base-squad2", 124_056_578, `{"architectures": ["RobertaForQuestionAnswering"], "attention_probs_dropout_prob": 0.1, "bos_token_id": 0,
		"eos_token_id": 2, "gradient_checkpointing": false, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
		"initializer_range": 0.02, "intermediate_size": 3072, "language": "english", "layer_norm_eps": 1e-05,
		"max_position_embeddings": 514, "model_type": "roberta", "name": "Roberta", "num_attention_heads": 12,
		"num_hidden_layers": 12, "pad_token_id": 1, "position_embedding_type": "absolute", "type_vocab_size": 1,
		"use_cache": true, "vocab_size": 50265}`},
	{"bert-base-NER", 107_726_601, `{"_num_labels": 9, "architectures": ["BertForTokenClassification"], "attention_probs_dropout_prob": 0.1,
		"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "id2label": {"0": "O", "1": "B-MISC",
		"2": "I-MISC", "3": "B-PER", "4": "I-PER", "5": "B-ORG", "6": "I-ORG", "7": "B-LOC", "8": "I-LOC"},
		"initializer_range": 0.02, "intermediate_size": 3072, "label2id": {"B-LOC": 7, "O": 0}, "layer_norm_eps": 1e-12,
		"max_length": 512, "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12,
		"num_hidden_layers": 12, "output_past": true, "pad_token_id": 0, "type_vocab_size": 2, "vocab_size": 28996}`},
	{"ModernBERT-base", 149_655_232, `{"architectures": ["ModernBertForMaskedLM"], "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 50281,
		"classifier_activation": "gelu", "classifier_bias": false, "classifier_dropout": 0.0, "classifier_pooling": "mean",
		"cls_token_id": 50281, "decoder_bias": true, "deterministic_flash_attn": false, "embedding_dropout": 0.0,
		"eos_token_id": 50282, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "gradient_checkpointing": false,
		"hidden_activation": "gelu", "hidden_size": 768, "initializer_cutoff_factor": 2.0, "initializer_range": 0.02,
		"intermediate_size": 1152, "layer_norm_eps": 1e-05, "local_attention": 128, "local_rope_theta": 10000.0,
		"max_position_embeddings": 8192, "mlp_bias": false, "mlp_dropout": 0.0, "model_type": "modernbert", "norm_bias": false,
		"norm_eps": 1e-05, "num_attention_heads": 12, "num_hidden_layers": 22, "pad_token_id": 50283,
		"position_embedding_type": "absolute", "sep_token_id": 50282, "tie_word_embeddings": true, "torch_dtype": "float32",
		"transformers_version": "4.47.0.dev0", "vocab_size": 50368}`},
}

func TestPublishedConfigs(t *testing.T) {
	for _, p := range published {
		_, a, err := describe([]byte(p.config), Options{})
		if err != nil {
			t.Errorf("%s: %v", p.name, err)
			continue
		}
		count := 0
		for i := range a.links {
			count += a.links[i].elements()
		}
		if count != p.count {
			t.Errorf("%s has %d parameters, want %d", p.name, count, p.count)
		}
	}
}

// What a config asks for and there is no model for is an error that names the field.
func TestConfigErrors(t *testing.T) {
	for _, c := range []struct{ model, field, value, want string }{
		{"gpt2", "model_type", `"mamba"`, `field model_type is "mamba", it needs to be one of albert, arcee, bart,`},
		{"gpt2", "model_type", `7`, "field model_type is 7, it needs to be a string"},
		{"gpt2", "n_head", `"many"`, `field n_head is "many", it needs to be an integer`},
		{"gpt2", "n_layer", `-1`, "field n_layer is -1, it needs to be from 1 to 16777216"},
		{"gpt2", "n_layer", `16777216`, "field n_layer is 16777216, it needs to be from 1 to 4096"},
		{"gpt2", "activation_function", `"mish"`, `field activation_function is "mish", it needs to be gelu, gelu_new`},
		{"gpt2", "add_cross_attention", `true`, "field add_cross_attention is true, only false is supported"},
		{"llama3", "hidden_size", `null`, "field hidden_size is missing"},
		{"llama3", "quantization_config", `{"bits":4}`, `field quantization_config.quant_method is "", it needs to be awq, bitsandbytes, compressed-tensors`},
		{"llama3", "rms_norm_eps", `0`, "field rms_norm_eps is 0, it needs to be positive"},
		{"bert", "layer_norm_eps", `0.0`, "field layer_norm_eps is 0, it needs to be positive"},
		{"gemma2", "attn_logit_softcapping", `0`, "field attn_logit_softcapping is 0, it needs to be positive"},
		{"gemma2", "final_logit_softcapping", `0.0`, "field final_logit_softcapping is 0, it needs to be positive"},
		{"deepseek_v3", "norm_topk_prob", `null`, "field norm_topk_prob is null, it needs to be true or false"},
		{"falcon", "parallel_attn", `null`, "field parallel_attn is null, it needs to be true or false"},
		{"llama3", "rms_norm_eps", `-1`, "field rms_norm_eps is -1, it cannot be negative"},
		{"llama3", "rms_norm_eps", `1e308`, "field rms_norm_eps is 1e+308, it needs to be a number that a float32 holds"},
		{"llama3", "rope_parameters", `{"rope_type": "default", "rope_theta": 0}`, "field rope_theta is 0, it needs to be at least 1"},
		{"llama3", "rope_parameters", `{"rope_type": "linear", "factor": 0}`, "field rope_parameters.factor is 0, it needs to be at least 1"},
		{"qwen2", "rope_parameters", `{"rope_type": "default", "rope_theta": 0.5}`, "field rope_theta is 0.5, it needs to be at least 1"},
		{"llama3", "rope_parameters", `{"rope_type": "linear", "factor": 1e308}`, "field rope_parameters.factor is 1e+308, it needs to be a number"},
		{"modernbert", "rope_parameters", `{"full_attention": {"rope_type": "default", "rope_theta": 0}}`, "field rope_theta is 0, it needs to be at least 1"},
		{"llama3", "rope_parameters", `{"rope_type": "mrope"}`, `field rope_parameters.rope_type is "mrope", it needs to be default`},
		{"llama3", "rope_parameters", `{"rope_type": "default", "mrope_section": [1]}`, "field rope_parameters.mrope_section, which is [1], is not known"},
		{"llama3", "rope_parameters", `{"rope_type": "llama3", "factor": 0.5}`, "field rope_parameters.factor is 0.5, it needs to be at least 1"},
		{"gemma3", "layer_types", `["full_attention"]`, "field layer_types has 1 elements, it needs one for each of the 2 layers"},
		{"gemma3", "layer_types", `["full_attention", "chunked_attention"]`, `field layer_types has "chunked_attention"`},
		{"gemma3", "use_bidirectional_attention", `true`, "field use_bidirectional_attention is true"},
		{"gemma3", "attn_logit_softcapping", `50`, "field attn_logit_softcapping is 50, Gemma 3 has none"},
		{"phi3", "rope_parameters", `{"rope_type": "longrope", "short_factor": [1], "long_factor": [1]}`, "field rope_parameters.short_factor or long_factor has 1 numbers"},
		{"llama3", "rope_parameters", `{"rope_type": "longrope", "short_factor": [1, 1, 1]}`, "field rope_parameters.short_factor or long_factor has 0 numbers"},
		{"stablelm", "is_causal", `false`, "field is_causal is false, only true is supported for a stablelm"},
		{"llama-classes", "is_causal", `false`, "only true is supported for a llama, or one with a head for classes"},
		{"gpt2", "is_causal", `null`, "field is_causal is null, only true is supported"},
		{"bert", "position_embedding_type", `"relative_key"`, "field position_embedding_type is relative_key, only absolute is supported"},
		{"bert", "architectures", `["BertForMultipleChoice"]`, `field architectures is "BertForMultipleChoice", it needs to end with Model,`},
		{"bert-classes", "id2label", `{}`, "field id2label is empty"},
		{"vit", "patch_size", `3`, "field patch_size is 3, it needs to divide image_size, which is 8"},
		{"vit", "qkv_bias", `0`, "field qkv_bias is 0, it needs to be true or false"},
		{"vit", "architectures", `["ViTForMaskedImageModeling"]`, `field architectures is "ViTForMaskedImageModeling", it needs to end with Model or ForImageClassification`},
		{"deepseek_v3", "num_nextn_predict_layers", `5000`, "field num_nextn_predict_layers is 5000, it needs to be from 0 to 4096"},
		{"smollm3", "no_rope_layers", `[1]`, "field no_rope_layers has 1 elements"},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", c.model, "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		fields[c.field] = json.RawMessage(c.value)
		if text, err = json.Marshal(fields); err != nil {
			t.Fatal(err)
		}
		_, _, err = describe(text, Options{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %s %s: %v, want an error with %q", c.model, c.field, c.value, err, c.want)
		}
	}
	if _, _, err := describe([]byte(strings.Replace(published[0].config, "{", `{"mystery": 1, `, 1)), Options{IgnoreFields: []string{"mystery"}}); err != nil {
		t.Errorf("a field that is to be ignored: %v", err)
	}
}

// Fields that published configs have and that no code reads pass.
func TestInertFields(t *testing.T) {
	for _, p := range published {
		for _, inert := range []string{
			`"is_llama_config": true, "rope_interleaved": false`, `"unsloth_fixed": true, "unsloth_version": "2025.1.5"`,
			`"_num_labels": 1, "vocab_type": "x"`, `"max_sequence_length": 2048`, `"sliding_window_size": 4096`, `"interpolate_factor": 1, "full_attn_mod": 1`,
			`"directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12, "pooler_num_fc_layers": 3,
				"pooler_size_per_head": 128, "pooler_type": "first_token_transform"`,
			`"temperature": 0.6, "top_k": 50, "top_p": 0.9, "max_length": 20, "num_beams": 1, "repetition_penalty": 1.1`,
		} {
			if _, _, err := describe([]byte(strings.Replace(p.config, "{", "{"+inert+", ", 1)), Options{}); err != nil {
				t.Errorf("%s with %s: %v", p.name, inert, err)
			}
		}
	}
}

// Folders that lie give errors, and nothing outside them is opened.
func TestHostileFolders(t *testing.T) {
	const model = "gpt2"
	config, err := os.ReadFile(filepath.Join("testdata", model, configFile))
	if err != nil {
		t.Fatal(err)
	}
	weights := filepath.Join("testdata", model, weightsFile)
	index := func(shard string) string {
		text, _ := json.Marshal(map[string]any{"weight_map": map[string]string{"transformer.wte.weight": shard}})
		return string(text)
	}
	write := func(t *testing.T, folder, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, folder string)
		want    string
	}{
		"empty": {func(t *testing.T, folder string) { os.Remove(filepath.Join(folder, configFile)) }, "there is no config.json, it needs to be a model's folder"},
		"a file": {func(t *testing.T, folder string) {
			if err := errors.Join(os.RemoveAll(folder), os.WriteFile(folder, nil, 0o644)); err != nil {
				t.Fatal(err)
			}
		}, "it is a file, it needs to be a model's folder"},
		"no weights":     {func(*testing.T, string) {}, "there is neither model.safetensors nor model.safetensors.index.json"},
		"null":           {func(t *testing.T, folder string) { write(t, folder, configFile, "null") }, "it is null"},
		"no JSON":        {func(t *testing.T, folder string) { write(t, folder, configFile, "{") }, "config.json: unexpected end"},
		"large config":   {func(t *testing.T, folder string) { write(t, folder, configFile, strings.Repeat(" ", maxConfig+1)) }, "more than 16777216 bytes"},
		"a folder":       {func(t *testing.T, folder string) { os.Mkdir(filepath.Join(folder, weightsFile), 0o755) }, "no regular file"},
		"outside":        {func(t *testing.T, folder string) { write(t, folder, indexFile, index("../model.safetensors")) }, "is not the name of a file in the folder"},
		"absolute":       {func(t *testing.T, folder string) { write(t, folder, indexFile, index("/etc/passwd")) }, "is not the name of a file in the folder"},
		"missing shard":  {func(t *testing.T, folder string) { write(t, folder, indexFile, index("other.safetensors")) }, "no such file"},
		"shard no file":  {func(t *testing.T, folder string) { write(t, folder, indexFile, index(configFile)) }, "safetensors"},
		"lying index":    {lyingIndex(index("shard.safetensors")), "says that tensor"},
		"missing tensor": {shard(safetensors.Tensors{{Name: "wte.weight", Value: zeros(48, 24)}}), `tensor "transformer.wpe.weight" is missing`},
		"wrong shape":    {shard(safetensors.Tensors{{Name: "wte.weight", Value: zeros(24, 48)}}), `tensor "wte.weight" has shape [24 48], the config asks for [48 24]`},
		"cyclic links": {func(t *testing.T, folder string) {
			if err := os.Symlink(weightsFile, filepath.Join(folder, weightsFile)); err != nil {
				t.Skip(err)
			}
		}, "there is neither"},
		"cyclic config": {func(t *testing.T, folder string) {
			os.Remove(filepath.Join(folder, configFile))
			if err := os.Symlink(configFile, filepath.Join(folder, configFile)); err != nil {
				t.Skip(err)
			}
		}, "config.json"},
		"cyclic shard": {func(t *testing.T, folder string) {
			write(t, folder, indexFile, index("shard.safetensors"))
			if err := os.Symlink("shard.safetensors", filepath.Join(folder, "shard.safetensors")); err != nil {
				t.Skip(err)
			}
		}, "shard.safetensors"},
		"an adapter": {func(t *testing.T, folder string) { write(t, folder, adapterConfigFile, "{}") }, "adapter_config.json lies beside the model"},
		"extra tensor": {func(t *testing.T, folder string) {
			file, err := safetensors.Open(weights)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			all, err := file.Tensors()
			if err != nil {
				t.Fatal(err)
			}
			shard(append(all, safetensors.Tensor{Name: "score.weight", Value: zeros(2, 24)}))(t, folder)
		}, `tensor "score.weight" is none that the config asks for`},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			write(t, folder, configFile, string(config))
			c.prepare(t, folder)
			_, err := Load(folder, Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), folder) {
				t.Errorf("%v, want an error with %q and the folder", err, c.want)
			}
		})
	}
}

// A config that describes more than any machine has, beside small files, takes no memory for it.
func TestHostileSizes(t *testing.T) {
	folder := t.TempDir()
	const config = `{"model_type": "llama", "vocab_size": 16777216, "hidden_size": 16777216, "intermediate_size": 16777216,
		"num_hidden_layers": 1000, "num_attention_heads": 16777216}`
	if err := os.WriteFile(filepath.Join(folder, configFile), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	shard(safetensors.Tensors{{Name: "model.embed_tokens.weight", Value: zeros(2, 2)}})(t, folder)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := Load(folder, Options{})
	runtime.ReadMemStats(&after)
	if want := "has shape [2 2], the config asks for [16777216 16777216]"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want an error with %q", err, want)
	}
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 32<<20 {
		t.Errorf("it takes %d bytes", taken)
	}
}

func zeros(shape ...int) *tensor.Dense {
	return tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))
}

// shard writes the weights of a folder.
func shard(tensors safetensors.Tensors) func(*testing.T, string) {
	return func(t *testing.T, folder string) { writeTensors(t, filepath.Join(folder, weightsFile), tensors) }
}

// lyingIndex writes an index beside a shard that has another tensor.
func lyingIndex(index string) func(*testing.T, string) {
	return func(t *testing.T, folder string) {
		if err := os.WriteFile(filepath.Join(folder, indexFile), []byte(index), 0o644); err != nil {
			t.Fatal(err)
		}
		writeTensors(t, filepath.Join(folder, "shard.safetensors"), safetensors.Tensors{{Name: "other", Value: zeros(1)}})
	}
}

func writeTensors(t *testing.T, path string, tensors safetensors.Tensors) {
	t.Helper()
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := safetensors.Write(file, tensors, nil); err != nil {
		t.Fatal(err)
	}
}
