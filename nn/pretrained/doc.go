// Package pretrained loads the models that people have: folders as transformers writes them, with a
// config.json and safetensors files. It makes them of the layers of package nn, so that they are
// run, trained and changed like any other, and writes them back so that transformers reads them.
//
//	m, err := pretrained.Load("hub:HuggingFaceTB/SmolLM2-135M", pretrained.Options{})    // or a folder
//	s := nn.NewScope(gorgonia.NewGraph(), m.Parameters())
//	logits := m.LanguageModel(s).Forward(tokens)    // (batch, length) → (batch, length, vocabulary)
//
// [Model.Encoder] does the same for a BERT or a ViT, whose vectors, classes or predictions of
// masked tokens [nn.Encoder] gives. [Model.NewDecoder] predicts token after token, model.Loss is
// what training differentiates, and [Model.Save] writes what training made of the parameters, in 32
// or 16 bits. [github.com/stheno-ml/stheno/train/embed] makes vectors of texts by them.
//
// A graph of a model evaluates, without dropout, unless a Loop or ops.Mode.Train trains it. With
// [Options.FreezePadding] the vector of padding gets no gradient, as in transformers.
//
// # Models
//
// The families are, by the model_type in their config:
//
//   - decoders: gpt2; llama, which SmolLM, TinyLlama and many others are too; mistral, with its
//     sliding window; qwen2 and qwen3; gemma, gemma2 and gemma3_text, alone or the text part of
//     gemma3; phi and phi3; olmo, olmo2 and olmo3; granite; cohere and cohere2; glm and glm4;
//     stablelm; starcoder2; smollm3; arcee, ernie4_5 and seed_oss; mixtral, qwen2_moe, qwen3_moe,
//     olmoe, glm4_moe, gpt_oss, deepseek_v2 and deepseek_v3, whose experts are [nn.Experts];
//     gpt_neo, gpt_neox, gptj, gpt_bigcode, falcon, bloom, mpt, opt and persimmon. llama, mistral,
//     qwen2, qwen3 and the Gemmas may have a head for classes of texts, such as a reward, which
//     [nn.LanguageModel.Classify] applies. Files of any may lack the head, for vectors alone;
//   - encoders of texts: bert, roberta, xlm-roberta, camembert, distilbert, albert, electra and
//     mpnet, with the heads for masked tokens, for classes of texts and of tokens, and for
//     questions;
//     nomic_bert, with those but the last; deberta-v2, which DeBERTa-v3 is too, with all of them
//     and padding behind its texts if they get classes; modernbert, alone or with its head for
//     masked tokens; gemma3_text whose attention sees all tokens, as EmbeddingGemma's, and llama,
//     mistral, qwen2 and qwen3 whose is_causal is false, as gte-Qwen2's; a layer with a window then
//     reaches as far on either side;
//   - encoders of images: vit, with a pooler or the head for classes; dinov2, with registers or
//     without; dinov3_vit;
//   - clip and siglip, of texts and images, which [Model.Contrastive] makes;
//   - t5, mt5, bart, marian and whisper, which read a text or the spectra of a sound and write a
//     text: [Model.EncoderDecoder] makes them, and Read of a decoder gives them a source.
//
// Where a config asks for it, transformers leaves out layers or adds noise while it trains:
// layerdrop, drop_path_rate, router_jitter_noise, apply_spec_augment. Training here does not.
// An MPT's slopes go by alibi_bias_max, as in its authors' code, which transformers passes over.
//
// RoPE is scaled as the config says: linear, dynamic (up to the length of the training), llama3,
// yarn or longrope.
//
// A config that asks for something else is refused with an error that names the field. So is one
// with a field that is not known here: it may change what the model computes.
// [Options.IgnoreFields] lets those pass that do not. A folder whose tensors are not exactly those
// that its config describes is refused as well.
//
// # A model of one's own
//
// [NewModel] makes a Model of a GPT or Llama that was trained from scratch, so that [Model.Save]
// writes it as a folder of transformers. tokenizer.WriteFolder writes its tokenizer there.
//
// # Fine-tuning
//
// [Model.AddLoRA] gives the model small changes that are trained in place of its weights, as LoRA
// or as DoRA; [Model.LoadLoRA] and [Model.SaveLoRA] read and write them as peft does, and
// nn.Parameters.MergeLoRA adds them to the weights. What is not trained costs neither gradients nor
// an optimiser's state:
//
//	err := m.AddLoRA(pretrained.LoRA{Rank: 8, Alpha: 16})
//	loss := m.LanguageModel(s).Loss(tokens, targets)    // s is a Loop's, which trains what is not frozen
//
// Of peft's LoRA are read: ranks and alphas of single layers, modules that are trained whole,
// biases, embeddings, layers by numbers, and names as lists or regular expressions of Go. What is
// not is refused by the field's name, such as trainable_token_indices, lora_bias,
// target_parameters, a LoRA of lm_head, a DoRA of embeddings, or a whole module that is tied to
// another. A DoRA needs weights of float32. It computes lengths of all columns in each run: merge
// it to predict with.
//
// A model may have several adapters. [Model.LoadLoRAAs] gives one a name, and [Model.UseLoRA] says
// which graphs made from then on have.
//
// # Memory
//
// Parameters are float32, converted from float16 and bfloat16 by all processors, a megabyte of the
// files at a time. Matrices that transformers keeps as (out, in) are transposed to (in, out), as
// [nn.Linear] has them. Beside the parameters themselves, loading takes two megabytes for each
// processor. [Options.Device] moves the parameters to a GPU, and [Options.Compute] lets the layers
// compute in 16 bits.
//
// Predicting a token takes about as long as reading the weights. [Options.Weights] keeps those of
// linear layers and embeddings, the head among them, in bfloat16 or float16: each counts as what it
// was rounded to. A CPU computes and sums everything in float32, a GPU computes in that type and
// sums in float32.
//
//	m, err := pretrained.Load(place, pretrained.Options{Weights: ops.BFloat16})
//	d, err := m.NewDecoder(1024)
//
// ops.Int8, ops.Int4 and ops.NF4 pack the weights of linear layers in about 8.5, 4.5 and 4.15 bits
// each, one tensor after the other while they are read; [Options.Embeddings] is for the others. A
// LoRA beside such weights is QLoRA. The length of a weight's rows needs to be a multiple of 32,
// for NF4 of 64. A GPU computes with them too.
//
// # GGUF
//
// [Load] reads a file of llama.cpp whose name ends with .gguf, and [Model.SaveGGUF] writes one, for
// llama.cpp, Ollama and others: of Llama, Mistral without a window, Qwen 2 and 3, Phi 3 and the
// first two Gemmas. Package gguf says in which types; Q5_K, Q3_K and others are only read. With
// Weights of ops.Int8 or ops.Int4, tensors of Q8_0 or Q4_0 are kept as they are. [Model.Metadata]
// has the file's tokenizer, which tokenizer.FromGGUF makes.
//
// # Quantised folders
//
// Folders whose weights others have quantised are read like the rest. Weights are widened while
// they are read, some rows at a time, to the numbers that they count as:
//
//   - gptq of 2, 4 and 8 bits, in both formats of zeros, with groups in any order (desc_act);
//   - awq of 4 bits, version gemm;
//   - fp8, DeepSeek's, a scale for blocks of any size or for a tensor;
//   - compressed-tensors of FP8 (float-quantized), a scale for a tensor, a row or a block;
//   - bitsandbytes of 8 bits, and of 4 bits of the types nf4 and fp4;
//   - mxfp4 of gpt-oss' experts.
//
// They count as rounded to the type of their scales; nf4 as rounded to the type that weights had
// before. Activations are not quantised, whatever a config says. Options.Weights packs what was
// widened. ops.NF4 keeps the codes and scales of nf4 as they are where the scales are quantised too
// (bnb_4bit_use_double_quant), and does not round what they stand for. MXFP4 becomes float32, or
// with Options.Weights of ops.BFloat16 stays what it is, in 16 bits; experts are not kept in fewer
// bits. [Model.Save] writes all of them wide, or in nf4 if its Weights say so.
//
// Refused by the name of the field or tensor are other methods, such as marlin, awq's gemv,
// integers of compressed-tensors and GPTQ's modules that differ (dynamic), and the weights of
// GPT-2's Conv1D.
//
// # Trust
//
// Nothing in a folder is trusted. Sizes come from the config and are checked against the files
// before memory is taken for them, an index can name only files in its own folder, and a file that
// is not valid is an error, never a panic.
package pretrained
