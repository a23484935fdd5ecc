package serve

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/nn/pretrained"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train"
	"github.com/stheno-ml/stheno/train/sample"
	"github.com/stheno-ml/stheno/train/tokenizer"
	"github.com/stheno-ml/stheno/train/tokenizer/chat"
	"github.com/stheno-ml/stheno/train/watch"
	"gorgonia.org/tensor"
)

// Model is a published language model with all that it needs to answer.
type Model struct {
	*pretrained.Model
	Tokenizer Tokenizer
	// Template writes conversations; nil for a model that has none, or one that cannot be read.
	Template   *chat.Template
	noTemplate error // why
	// Options are what the model's generation_config.json asks for, and the tokens that end an
	// answer. MaxTokens is 0.
	Options sample.Options
	// Capacity is how many tokens a text has room for, with its prompt: what the config asks for.
	Capacity int
}

// Tokenizer is a model's tokenizer. The special tokens that a model writes, such as one that ends
// an answer, have no text.
type Tokenizer struct{ *tokenizer.HuggingFace }

// Bytes is the text of one id within a text, empty for a special token.
func (t Tokenizer) Bytes(id int) ([]byte, error) {
	text, err := t.Decode([]int{id})
	if err != nil {
		return nil, err
	}
	if shown, err := t.DecodeText([]int{id}); err != nil || shown == "" && text != "" {
		return nil, err
	}
	return t.HuggingFace.Bytes(id)
}

// ModelConfig says which model there is to open, and where.
type ModelConfig struct {
	// Folder is the model's, or hub:NAME or hub:NAME@REVISION, or a GGUF file.
	Folder string
	// Device is where it computes, as [train.PlaceConfig] has it.
	Device string
	// Weights is what weights are kept in: bfloat16 (empty), float16, float32, int8, int4 or nf4.
	Weights string
	// Embeddings is what embeddings are kept in, and the head with them: one of those names but
	// float32, or empty for float32 beside int8, int4 and nf4, and for what Weights is otherwise.
	Embeddings string
	// Context is how many tokens a text may have, with its prompt. 0 means 2,048, or the model's
	// context where that is shorter.
	Context int
	// Screen, if it is not nil, is told of what is downloaded and read.
	Screen io.Writer
}

// Flags adds flags for what there is to choose to a set.
func (c *ModelConfig) Flags(f *flag.FlagSet) {
	f.StringVar(&c.Folder, "model", c.Folder, "the model's folder, or hub:NAME or hub:NAME@REVISION, or a GGUF file")
	f.IntVar(&c.Context, "context", c.Context, "tokens of a text with its prompt (default: 2048, or the model's context if that is shorter)")
	f.StringVar(&c.Device, "device", "auto", "auto, cpu or cuda")
	f.StringVar(&c.Weights, "weights", "bfloat16", "what weights are kept in: "+typeNames(weightTypes))
	f.StringVar(&c.Embeddings, "embeddings", "", "what embeddings and the head are kept in: "+typeNames(embeddingTypes)+" (default: as -weights, or float32 beside packed weights)")
}

// weightTypes are the types by their names.
var weightTypes = map[string]tensor.Dtype{
	"float32": tensor.Float32, "bfloat16": ops.BFloat16, "float16": ops.Float16, "int8": ops.Int8, "int4": ops.Int4, "nf4": ops.NF4,
}

// embeddingTypes are those that embeddings may have in place of what follows from the weights'.
var embeddingTypes = func() map[string]tensor.Dtype {
	types := maps.Clone(weightTypes)
	delete(types, "float32")
	return types
}()

func typeNames(types map[string]tensor.Dtype) string {
	return strings.Join(slices.Sorted(maps.Keys(types)), ", ")
}

// Open loads a model with its tokenizer.
func Open(ctx context.Context, c ModelConfig) (*Model, error) {
	if c.Weights == "" {
		c.Weights = "bfloat16"
	}
	weights, known := weightTypes[c.Weights]
	embeddings, knownToo := embeddingTypes[c.Embeddings]
	switch {
	case c.Folder == "":
		return nil, errors.New("no model is named: Folder (-model) needs to be a model's folder, a GGUF file or hub:NAME")
	case !known:
		return nil, fmt.Errorf("weights (-weights) are %q, they need to be one of %s", c.Weights, typeNames(weightTypes))
	case !knownToo && c.Embeddings != "":
		return nil, fmt.Errorf("embeddings (-embeddings) are %q, they need to be one of %s, or empty", c.Embeddings, typeNames(embeddingTypes))
	}
	place, err := train.OpenPlace(ctx, train.PlaceConfig{Device: c.Device})
	if err != nil {
		return nil, err
	}
	if err := place.Close(); err != nil { // the ranks, of which one has no need of others
		return nil, err
	}
	m := &Model{}
	if err := m.load(ctx, c, pretrained.Options{Weights: weights, Embeddings: embeddings, Device: place.Device()}); err != nil {
		return nil, err
	}
	read := m.readFolder
	if m.Metadata() != nil {
		read = m.readMetadata
	}
	if err := read(); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Folder(), err)
	}
	m.Options.MaxTokens = 0
	if err := m.fit(c.Context); err != nil {
		return nil, err
	}
	return m, nil
}

// usualCapacity is how many tokens there is room for where nobody says.
const usualCapacity = 2048

// fit finds how many tokens a text has room for.
func (m *Model) fit(context int) error {
	longest, err := m.Context()
	if err != nil {
		return err
	}
	if longest == 0 { // no limit
		longest = math.MaxInt
	}
	switch {
	case context < 0:
		return fmt.Errorf("context (-context) is %d, it needs to be positive, or 0 for %d or what the model takes", context, usualCapacity)
	case context > longest:
		return fmt.Errorf("context (-context) is %d, the model in %s takes at most %d tokens", context, m.Folder(), longest)
	case context == 0:
		context = min(usualCapacity, longest)
	}
	m.Capacity = context
	return nil
}

// readFolder reads what lies beside the weights in a folder.
func (m *Model) readFolder() (err error) {
	folder := m.Folder()
	if m.Tokenizer.HuggingFace, err = tokenizer.Open(folder); err != nil {
		return err
	}
	if m.Options, err = sample.ReadConfig(folder); err != nil {
		return err
	}
	m.Template, m.noTemplate = chat.Open(folder)
	return m.readEnding(folder)
}

// readMetadata reads what a GGUF file has of the tokenizer, the template and the tokens that end an
// answer.
func (m *Model) readMetadata() (err error) {
	metadata := m.Metadata()
	if m.Tokenizer.HuggingFace, err = tokenizer.FromGGUF(metadata); err != nil {
		return err
	}
	tokens := map[string]string{}
	for _, name := range []string{"bos", "eos", "eot"} {
		id, given := metadata["tokenizer.ggml."+name+"_token_id"].(uint32)
		if !given {
			continue
		}
		token, err := m.Tokenizer.Token(int(id))
		if err != nil {
			return err
		}
		if tokens[name+"_token"] = token; name != "bos" {
			m.Options.Stop = append(m.Options.Stop, int(id))
		}
	}
	source, given := metadata["tokenizer.chat_template"].(string)
	if !given {
		m.noTemplate = errors.New("its metadata has no tokenizer.chat_template")
		return nil
	}
	m.Template, m.noTemplate = chat.New(source, tokens)
	return nil
}

// load reads the weights.
func (m *Model) load(ctx context.Context, c ModelConfig, o pretrained.Options) error {
	screen := c.Screen
	if screen == nil {
		screen = io.Discard
	}
	status := watch.NewStatus(screen)
	folder, err := pretrained.Find(ctx, c.Folder, func(file string, done, total int64) {
		line := fmt.Sprintf("%s: %.1f of %.1f MB", file, float64(done)/1e6, float64(total)/1e6)
		if done < total {
			status.Show(line)
		} else {
			status.Done(line)
		}
	})
	if err != nil {
		return err
	}
	o.Progress = func(done, total int64) {
		status.Show(fmt.Sprintf("weights: %d %% are read", 100*done/max(total, 1)))
	}
	m.Model, err = pretrained.Load(folder, o)
	status.Done("")
	return err
}

// readEnding adds the token that the tokenizer's config names as the end to the options.
func (m *Model) readEnding(folder string) error {
	var config struct {
		EOS json.RawMessage `json:"eos_token"`
	}
	if err := readJSON(filepath.Join(folder, "tokenizer_config.json"), &config); err != nil {
		return err
	}
	var name string
	if json.Unmarshal(config.EOS, &name) != nil {
		var token struct{ Content string }
		_ = json.Unmarshal(config.EOS, &token) // a token of another form is one that ends nothing
		name = token.Content
	}
	if id, found := m.Tokenizer.ID(name); found && !slices.Contains(m.Options.Stop, id) {
		m.Options.Stop = append(m.Options.Stop, id)
	}
	return nil
}

// maxConfig is how many bytes a config may have.
const maxConfig = 64 << 20

// readJSON reads a file, if it is there.
func readJSON(path string, to any) error {
	content, err := plainfile.ReadFile(path, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(content, to)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

// Prompt is the tokens of a conversation, up to where the model's answer begins.
func (m *Model) Prompt(messages []chat.Message) ([]int, error) {
	if m.Template == nil {
		return nil, fmt.Errorf("the model has no template of conversations: %w", m.noTemplate)
	}
	text, err := m.Template.Render(messages, chat.Options{Answer: true})
	if err != nil {
		return nil, err
	}
	return m.Tokenizer.Encode(text)
}

// Continue is the tokens of a text that the model is to continue, with those that stand before each
// text.
func (m *Model) Continue(text string) ([]int, error) {
	e, err := m.Tokenizer.EncodeWith(text, tokenizer.EncodeOptions{})
	if err != nil {
		return nil, err
	}
	return e.IDs, nil
}
