package pretrained

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/nn/pretrained/hub"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Options are the options of [Load]. The zero value is what most programs want.
type Options struct {
	// Context is the longest sequence that the model will be used for; 0 means the one that its
	// config names. Models with LongRoPE have one set of frequencies up to the length of their
	// first training and another beyond it: 0 means the first.
	Context int
	// Compute is the type of what the layers compute: float32 (zero), ops.BFloat16 or ops.Float16.
	// Parameters are float32.
	Compute tensor.Dtype
	// Weights is the type that weights are kept in: float32 (zero); ops.BFloat16 or ops.Float16, of
	// linear layers and embeddings, with which a decoder is about twice as fast; or ops.Int8,
	// ops.Int4 or ops.NF4, of linear layers, which are packed as they are read. Nothing but a LoRA
	// can then be trained. On a GPU, Compute is the same type where that has 16 bits, and bfloat16
	// beside packed weights if it is not said. See [nn.Parameters.KeepWeights].
	Weights tensor.Dtype
	// Embeddings is the type that embeddings are kept in, and a language model's head; the zero
	// value leaves it to Weights.
	Embeddings tensor.Dtype
	// Device is where the parameters are moved to, so that every graph of the model computes there;
	// nil for the host.
	Device *ops.Device
	// FreezePadding keeps the vector of the config's pad_token_id from getting a gradient from
	// texts that hold it, as transformers does.
	FreezePadding bool
	// IgnoreFields are fields of config.json that are unknown here and may be passed over.
	IgnoreFields []string
	// Progress, if it is not nil, is called while tensors are read, with the number of bytes read
	// so far and in all. Calls come one after the other.
	Progress func(done, total int64)
	// Download, if it is not nil, is told of each file of a model that is downloaded how many of
	// its bytes are there.
	Download func(file string, done, total int64)
}

// Model is a loaded model: its parameters, and what makes it in a graph.
type Model struct {
	family     string
	config     []byte         // config.json as it was read
	folder     string         // or the GGUF file
	metadata   map[string]any // of that
	parameters *nn.Parameters
	compute    tensor.Dtype
	arch       *architecture
	adapters   map[string]*adapter
	active     string // the name of the adapter that graphs have, empty for none
}

// architecture is what a family makes of a config.
type architecture struct {
	links   []link
	prefix  string   // of the tensors' names, which files written from the model without its head lack
	unused  []string // tensors of files, by how their names end, that are no parameters
	further []string // the same, by how they begin
	// repeats are tensors of files that transformers ties to others: they need to be equal.
	repeats []repeat
	renamed []renaming     // what else tensors may be called in files
	config  []byte         // to save, where that is not what was read
	padding map[string]int // the rows of padding in tables, by the parameters
	// headOrNot, if it is not nil, is told whether the files have a head of their own.
	headOrNot func(has bool)
	frozen    []string // parameters that transformers does not train
	reads     bool     // it is an encoder and a decoder
	heads     []string // the modules that make logits of tokens or classes
	// weights is the file of the tensors; empty for model.safetensors or what its index lists.
	weights   string
	quantised quantiser             // nil where nothing is
	stored    tensor.Dtype          // what most numbers of the files are, once they were read
	build     func(s *nn.Scope) any // an *nn.LanguageModel, *nn.Encoder, *nn.Contrastive or *nn.EncoderDecoder
	decoder   *decoder              // what it was made of; nil for another
}

// renaming is another beginning of tensors' names.
type renaming struct{ from, to string }

// repeat is a tensor, by how its name ends, that has the values of another.
type repeat struct{ name, of string }

// families are the readers of configs by model_type. The number is the context that is asked for, 0
// for the config's.
var families = map[string]func(*config, int) *architecture{
	"albert":                albert,
	"arcee":                 arcee,
	"bart":                  bart,
	"bert":                  bert,
	"marian":                marian,
	"mt5":                   mt5,
	"t5":                    t5,
	"whisper":               whisper,
	"bloom":                 bloom,
	"camembert":             roberta,
	"clip":                  clip,
	"cohere":                cohere,
	"cohere2":               cohere2,
	"deberta-v2":            deberta,
	"deepseek_v2":           deepSeekV2,
	"deepseek_v3":           deepSeekV3,
	"dinov2":                dinov2,
	"dinov3_vit":            dinov3,
	"distilbert":            distilBERT,
	"dinov2_with_registers": dinov2,
	"electra":               electra,
	"ernie4_5":              ernie,
	"falcon":                falcon,
	"gemma":                 gemma,
	"gemma2":                gemma2,
	"gemma3_text":           gemma3,
	"gemma3":                multimodalGemma3,
	"glm":                   glm,
	"glm4":                  glm4,
	"glm4_moe":              glm4MoE,
	"gpt2":                  gpt2,
	"gpt_bigcode":           gptBigCode,
	"gpt_neo":               gptNeo,
	"gpt_neox":              gptNeoX,
	"gptj":                  gptJ,
	"gpt_oss":               gptOSS,
	"granite":               granite,
	"llama":                 llama,
	"mistral":               mistral,
	"mixtral":               mixtral,
	"modernbert":            modernBERT,
	"mpnet":                 mpnet,
	"mpt":                   mpt,
	"nomic_bert":            nomicBERT,
	"olmo":                  olmo,
	"olmo2":                 olmo2,
	"olmo3":                 olmo3,
	"olmoe":                 olmoe,
	"opt":                   opt,
	"persimmon":             persimmon,
	"phi":                   phi,
	"phi3":                  phi3,
	"qwen2":                 qwen2,
	"qwen2_moe":             qwen2MoE,
	"qwen3":                 qwen3,
	"qwen3_moe":             qwen3MoE,
	"roberta":               roberta,
	"seed_oss":              seedOSS,
	"siglip":                siglip,
	"smollm3":               smollm3,
	"stablelm":              stableLM,
	"starcoder2":            starcoder2,
	"vit":                   vit,
	"xlm-roberta":           roberta,
}

// Load reads a model's folder: config.json, and model.safetensors or the shards that
// model.safetensors.index.json lists. Parameters are float32 in memory, whatever the files hold,
// but for weights that Options keeps in less memory. A place may also be hub:NAME or
// hub:NAME@REVISION, see [Find], or a GGUF file whose name ends with .gguf.
func Load(place string, o Options) (*Model, error) {
	folder, err := Find(context.Background(), place, o.Download)
	if err != nil {
		return nil, err
	}
	m := &Model{folder: folder, compute: o.Compute}
	if o.Device != nil && m.compute == (tensor.Dtype{}) {
		if m.compute = o.Weights; ops.IsPacked(o.Weights) {
			m.compute = ops.BFloat16
		}
	}
	if err := m.load(o); err != nil {
		return nil, fmt.Errorf("pretrained: %s: %w", folder, err)
	}
	return m, nil
}

// Find returns the folder of a model or an adapter. That is place itself, unless it is hub:NAME or
// hub:NAME@REVISION: those are downloaded, if they are not in the cache yet, as package hub says.
// Progress, if it is not nil, is told of the files that are.
func Find(ctx context.Context, place string, progress func(file string, done, total int64)) (folder string, err error) {
	name, onHub := strings.CutPrefix(place, "hub:")
	if !onHub {
		return place, nil
	}
	if folder, err = hub.Fetch(ctx, name, hub.Options{Progress: progress}); err != nil {
		return "", fmt.Errorf("pretrained: %w", err)
	}
	return folder, nil
}

func (m *Model) load(o Options) error {
	read := m.readFolder
	if strings.HasSuffix(m.folder, ".gguf") {
		read = m.readGGUF
	}
	if err := read(o); err != nil {
		return err
	}
	return m.finish(o)
}

// readFolder reads the config and the parameters of a folder.
func (m *Model) readFolder(o Options) (err error) {
	if info, err := os.Stat(m.folder); err == nil && !info.IsDir() {
		return errors.New("it is a file, it needs to be a model's folder, as save_pretrained writes it, a file that ends in .gguf, or hub:NAME")
	}
	if _, err := os.Stat(filepath.Join(m.folder, adapterConfigFile)); err == nil {
		return fmt.Errorf("%s lies beside the model, it needs a folder of its own, which LoadLoRA reads: "+
			"transformers would load the model that it names, and change that", adapterConfigFile)
	}
	switch m.config, err = readSmallFile(m.folder, configFile, maxConfig); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %s, it needs to be a model's folder, as save_pretrained writes it, or hub:NAME: %w", configFile, fs.ErrNotExist)
	case err != nil:
		return err
	}
	if m.family, m.arch, err = describe(m.config, o); err != nil {
		return err
	}
	if m.arch.config != nil {
		m.config = m.arch.config
	}
	m.parameters, err = readFolder(m.folder, m.arch, keeping{o.Weights, o.Embeddings}, o.Progress)
	return err
}

// finish does what the options ask for with parameters that were read, and makes sure that they are
// all.
func (m *Model) finish(o Options) error {
	for name, row := range m.arch.padding {
		if o.FreezePadding {
			m.parameters.FreezeRows(name, row)
		}
	}
	if frozen := m.arch.frozen; len(frozen) > 0 {
		m.parameters.Freeze(func(name string) bool { return slices.Contains(frozen, name) })
	}
	if o.Device != nil {
		if err := m.parameters.MoveTo(o.Device); err != nil {
			return err
		}
	}
	// A parameter that is linked to no tensor would be random. A graph that is thrown away finds
	// it.
	s := nn.NewScope(gorgonia.NewGraph(), m.parameters)
	m.arch.build(s.Compute(m.compute))
	if err := s.Err(); err != nil {
		return err
	}
	var names []string
	for _, n := range s.Parameters() {
		names = append(names, n.Name())
	}
	linked := map[string]bool{}
	for i := range m.arch.links {
		for _, p := range m.arch.links[i].parts {
			linked[p.ours] = true
		}
	}
	slices.Sort(names)
	if want := slices.Sorted(maps.Keys(linked)); !slices.Equal(names, want) {
		return fmt.Errorf("the model has the parameters %v, the file's tensors are %v", names, want)
	}
	return nil
}

// describe reads a config.
func describe(text []byte, o Options) (family string, a *architecture, err error) {
	c, err := parseConfig(configFile, text)
	if err != nil {
		return "", nil, err
	}
	if o.Context < 0 {
		return "", nil, fmt.Errorf("context is %d, it needs to be positive, or 0 for the config's", o.Context)
	}
	family = c.string("model_type", "")
	if c.err != nil {
		return "", nil, c.err
	}
	read, found := families[family]
	if !found {
		return "", nil, fmt.Errorf("config.json: field model_type is %q, it needs to be one of %s",
			family, strings.Join(slices.Sorted(maps.Keys(families)), ", "))
	}
	a = read(c, o.Context)
	a.quantised = c.quantised()
	return family, a, c.finish(o.IgnoreFields)
}

// Folder is where the model was loaded from, with the files of its tokenizer.
func (m *Model) Folder() string { return m.folder }

// Family is the model_type of the config, such as "gpt2" or "llama".
func (m *Model) Family() string { return m.family }

// DType is what most numbers in the files of the model are: float32, ops.BFloat16 or ops.Float16.
// [Model.Save] keeps it if it is asked for it.
func (m *Model) DType() tensor.Dtype { return m.arch.stored }

// Metadata is what a GGUF file that the model was loaded from says, its tokenizer among it; nil for
// a folder. See package gguf.
func (m *Model) Metadata() map[string]any { return m.metadata }

// Parameters are the values of the model, by the names of package nn. Every graph that the model is
// added to shares them.
func (m *Model) Parameters() *nn.Parameters { return m.parameters }

// LanguageModel makes the model in a scope over [Model.Parameters], such as the one that a Loop
// gives whose Parameters they are, with the head that the architecture in its config has: for the
// next token, or for classes of texts. A model of another kind is an error of the scope.
//
// The graph evaluates, without dropout, unless it was told otherwise: a Loop trains it, and so does
// [ops.Mode.Train].
func (m *Model) LanguageModel(s *nn.Scope) *nn.LanguageModel {
	return build[nn.LanguageModel](m, s, "predicts no next token")
}

// Encoder makes a BERT, RoBERTa or ViT in a scope over [Model.Parameters], with the heads that the
// architecture in its config has: a pooler, a classifier, or predictions of masked tokens. A model
// that is none of these is an error of the scope. As with [Model.LanguageModel], the graph
// evaluates.
func (m *Model) Encoder(s *nn.Scope) *nn.Encoder { return build[nn.Encoder](m, s, "is no encoder") }

// Contrastive makes a CLIP or SigLIP in a scope over [Model.Parameters]. A model of another kind is
// an error of the scope. As with [Model.LanguageModel], the graph evaluates.
func (m *Model) Contrastive(s *nn.Scope) *nn.Contrastive {
	return build[nn.Contrastive](m, s, "has no towers of texts and images")
}

// EncoderDecoder makes a T5, BART, Marian or Whisper in a scope over [Model.Parameters]. A model of
// another kind is an error of the scope. As with [Model.LanguageModel], the graph evaluates.
func (m *Model) EncoderDecoder(s *nn.Scope) *nn.EncoderDecoder {
	return build[nn.EncoderDecoder](m, s, "reads no source")
}

// build makes the model in a scope.
func build[T any](m *Model, s *nn.Scope, otherwise string) *T {
	if s.Values() != m.parameters {
		s.Fail(errors.New("pretrained: the scope is over other parameters, it needs to be over those of the model"))
		return new(T)
	}
	if mode := ops.ModeOf(s.Graph()); !mode.IsSet() {
		mode.Evaluate()
	}
	built := m.arch.build(s.Compute(m.compute))
	model, ok := built.(*T)
	if !ok {
		s.Fail(fmt.Errorf("pretrained: a %s is a %T, it %s", m.family, built, otherwise))
		return new(T)
	}
	return model
}

// Context is the longest text that the model takes, in tokens, 0 if there is no limit. It needs to
// be one that writes.
func (m *Model) Context() (int, error) {
	s := nn.NewScope(gorgonia.NewGraph(), m.parameters)
	longest := m.decoder(0).Model(s).Context()
	return longest, s.Err()
}

// NewDecoder is a decoder of a language model, which predicts token after token and keeps what
// attention has seen. Capacity is how many tokens it looks back to; 0 means the model's context,
// whose cache may be large.
func (m *Model) NewDecoder(capacity int) (*nn.Decoder, error) {
	return nn.NewDecoder(m.decoder(capacity))
}

// NewBatchDecoder is a decoder of several texts at once; see [Model.NewDecoder].
func (m *Model) NewBatchDecoder(batch, capacity int) (*nn.BatchDecoder, error) {
	return nn.NewBatchDecoder(batch, m.decoder(capacity))
}

func (m *Model) decoder(capacity int) nn.DecoderConfig {
	return nn.DecoderConfig{Parameters: m.parameters, Capacity: capacity, Model: func(s *nn.Scope) nn.CachedModel {
		if m.arch.reads {
			return m.EncoderDecoder(s)
		}
		return m.LanguageModel(s)
	}}
}
