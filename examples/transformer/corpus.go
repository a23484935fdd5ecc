package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/stheno-ml/stheno/examples/internal/cli"
	"github.com/stheno-ml/stheno/internal/plainfile"
	"github.com/stheno-ml/stheno/train/data"
	"github.com/stheno-ml/stheno/train/tokenizer"
)

// corpusBytes is how much Go source there is to learn from: more than a CPU gets to see in a
// minute.
const corpusBytes = 4 << 20

// maxText is the most bytes that a text may have to be read at once; more is for tokens, in a .bin
// file.
const maxText = 4 << 30

// corpus is what there is to learn from: tokens that are in memory or mapped, or shards, of which a
// batch is read when it is needed.
type corpus struct {
	origin    string // what it is, for people
	isGo      bool   // Go source that the program has found
	tokenizer tokenizer.Tokenizer
	tokens    *data.Tokens
	shards    [2]*data.Shards // in place of tokens, to train on and to validate

	training, evaluated, validation data.Batches // to train on, to evaluate what was trained on, and to validate
}

// size is the number of tokens.
func (c corpus) size() int {
	if c.tokens != nil {
		return c.tokens.Len()
	}
	return c.shards[0].Len() + c.shards[1].Len()
}

// Close gives back files and memory.
func (c corpus) Close() (err error) {
	if c.tokens != nil {
		err = c.tokens.Close()
	}
	for _, shards := range c.shards {
		if shards != nil {
			err = errors.Join(err, shards.Close())
		}
	}
	return err
}

// batches are those to train on, to evaluate what was trained on, and to validate: of a text's
// tokens the last tenth.
func (c corpus) batches(s settings) (training, evaluated, validation data.Batches, err error) {
	if c.tokens == nil {
		return c.streams(s)
	}
	learnt, held, err := c.tokens.Split(0.9)
	if err != nil {
		return nil, nil, nil, err
	}
	random := func(tokens *data.Tokens, use string, seed uint64) data.Batches {
		b, batchErr := data.Random(tokens, s.Batch, s.Context, s.Seed+seed)
		if batchErr != nil && err == nil {
			err = fmt.Errorf("%s is too short for -context %d: %d of its %d tokens are to %s on, which takes at least %d",
				c.origin, s.Context, tokens.Len(), c.tokens.Len(), use, s.Context+1)
		}
		return b
	}
	training, evaluated, validation = random(learnt, "train", 0), random(learnt, "train", 1), random(held, "validate", 2)
	return training, evaluated, validation, err
}

// streams are batches of shards, each part of which comes once an epoch, in an order that the seed
// decides.
func (c corpus) streams(s settings) (training, evaluated, validation data.Batches, err error) {
	var list [3]*data.StreamBatches
	for i, shards := range []*data.Shards{c.shards[0], c.shards[0], c.shards[1]} {
		if list[i], err = data.Stream(shards, data.StreamOptions{Rows: s.Batch, Length: s.Context, Seed: s.Seed + uint64(i)}); err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", c.origin, err)
		}
	}
	return list[0], list[1], list[2], nil
}

// fingerprint tells corpora apart.
func (c corpus) fingerprint(s settings) (string, error) {
	if c.tokens != nil {
		return fingerprint(c.tokens), nil
	}
	h := fnv.New64a()
	training, _, validation, err := c.streams(s)
	for _, batches := range []data.Batches{training, validation} {
		for n := 0; n < 8 && err == nil; n++ {
			var b data.Batch
			if b, err = batches.Batch(n); err == nil {
				fmt.Fprintln(h, b["tokens"].Data())
			}
		}
	}
	return fmt.Sprintf("%d tokens in shards, %x", c.size(), h.Sum64()), err
}

// loadCorpus finds the text that the settings name and makes tokens of it. A run that is resumed
// must find what it was started with, which the settings remember.
func loadCorpus(s *settings) (c corpus, err error) {
	info, statErr := os.Stat(s.Data)
	switch {
	case statErr == nil && info.IsDir():
		c, err = loadShards(*s)
	case strings.HasSuffix(s.Data, ".bin"):
		c, err = loadTokens(*s)
	default:
		c, err = loadText(*s)
	}
	if err != nil {
		return c, err
	}
	print, err := c.fingerprint(*s)
	if err == nil && s.Fingerprint != "" && s.Fingerprint != print {
		err = fmt.Errorf("%s is not what this run was started with", c.origin)
	}
	if err != nil {
		return c, errors.Join(err, c.Close())
	}
	s.Fingerprint = print
	if c.training, c.evaluated, c.validation, err = c.batches(*s); err != nil {
		return c, errors.Join(err, c.Close())
	}
	return c, nil
}

// loadShards looks at the files that examples/prepare wrote to a folder.
func loadShards(s settings) (c corpus, err error) {
	c.origin = s.Data
	own := filepath.Join(s.Data, "tokenizer.json")
	_, statErr := os.Stat(own)
	switch {
	case s.Vocab != "":
		c.tokenizer, err = tokenizer.OpenGPT2(s.Vocab, s.Merges)
	case statErr == nil:
		c.tokenizer, err = tokenizer.OpenHuggingFace(own)
	default:
		err = fmt.Errorf("-data %s is a folder without the tokenizer.json that examples/prepare leaves beside tokens; "+
			"-vocab and -merges name GPT-2's, and a text is a file", s.Data)
	}
	if err != nil {
		return c, err
	}
	for i, name := range []string{"train", "validation"} {
		paths, err := filepath.Glob(filepath.Join(escaped(s.Data), name+"-*.bin"))
		if err == nil && len(paths) == 0 {
			err = fmt.Errorf("-data %s has no file %s-00000.bin; go run ./examples/prepare -validation 0.01 makes such a folder", s.Data, name)
		}
		if err == nil {
			c.shards[i], err = data.OpenShards(paths...)
		}
		if err != nil {
			return c, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// escaped is a path in which no character has a meaning to Glob.
func escaped(path string) string {
	if filepath.Separator == '\\' {
		return path // there is no way to
	}
	return strings.NewReplacer("*", "\\*", "?", "\\?", "[", "\\[", "\\", "\\\\").Replace(path)
}

// loadTokens maps a file of tokens.
func loadTokens(s settings) (corpus, error) {
	t, err := tokenizer.OpenGPT2(s.Vocab, s.Merges)
	if err != nil {
		return corpus{}, err
	}
	tokens, err := data.Open(s.Data)
	if err != nil {
		return corpus{}, err
	}
	if most := tokens.Max(); most >= t.Size() {
		return corpus{}, errors.Join(fmt.Errorf("-data %s has token %d, the tokenizer has %d", s.Data, most, t.Size()), tokens.Close())
	}
	return corpus{origin: s.Data, tokens: tokens, tokenizer: t}, nil
}

// loadText reads a text, or Go source if none is named.
func loadText(s settings) (c corpus, err error) {
	var text string
	if s.Data == "" {
		text, c.origin, err = goSource(cmp.Or(s.GoSource, corpusBytes))
		c.isGo = true
	} else {
		var content []byte
		if content, err = plainfile.ReadFile(s.Data, maxText); err != nil {
			return c, fmt.Errorf("-data: %w", cli.Missing(s.Data, err))
		}
		text, c.origin = string(content), s.Data
	}
	if err != nil {
		return c, err
	}
	if text == "" {
		return c, fmt.Errorf("-data %s is empty, there is nothing to learn from", s.Data)
	}
	if at := invalid(text); (s.BPE > 0 || s.Vocab != "") && at >= 0 { // characters say so themselves
		return c, fmt.Errorf("-data %s is no text in UTF-8, which it needs to be: it has %#x at byte %d", s.Data, text[at], at)
	}
	switch {
	case s.BPE > 0:
		c.tokenizer, err = tokenizer.TrainGPT2(text, s.BPE)
	case s.Vocab != "":
		if c.tokenizer, err = tokenizer.OpenGPT2(s.Vocab, s.Merges); err != nil {
			return c, fmt.Errorf("-vocab, -merges: %w", err)
		}
	default:
		c.tokenizer, err = tokenizer.NewCharacters(text)
	}
	if err != nil {
		return c, fmt.Errorf("%s: %w", c.origin, err)
	}
	ids, err := c.tokenizer.Encode(text)
	if err != nil {
		return c, fmt.Errorf("%s: %w", c.origin, err)
	}
	c.tokens, err = data.FromInts(ids)
	return c, err
}

// invalid is where a text ceases to be UTF-8, -1 for nowhere.
func invalid(text string) int {
	for at, c := range text {
		if c == utf8.RuneError && !strings.HasPrefix(text[at:], string(utf8.RuneError)) {
			return at
		}
	}
	return -1
}

// fingerprint tells token sequences apart: their length and a sum over some thousand places.
func fingerprint(tokens *data.Tokens) string {
	h := fnv.New64a()
	for i := 0; i < tokens.Len(); i += 1 + tokens.Len()/4096 {
		fmt.Fprintln(h, tokens.At(i))
	}
	return fmt.Sprintf("%d tokens, %x", tokens.Len(), h.Sum64())
}

// amount is about how many bytes of text there are to learn from.
func (s settings) amount() (int, error) {
	if s.Data == "" {
		text, _, err := goSource(cmp.Or(s.GoSource, corpusBytes))
		return len(text), err
	}
	info, err := os.Stat(s.Data)
	if err != nil {
		return 0, fmt.Errorf("-data: %w", cli.Missing(s.Data, err))
	}
	const ofToken = 2 // bytes of text for one of a token's two
	if !info.IsDir() {
		bytes := int(info.Size())
		if s.holdsTokens() {
			bytes *= ofToken
		}
		return bytes, nil
	}
	paths, err := filepath.Glob(filepath.Join(escaped(s.Data), "train-*.bin"))
	bytes := 0
	for _, path := range paths {
		info, statErr := os.Stat(path)
		if statErr != nil {
			return 0, fmt.Errorf("-data: %w", statErr)
		}
		bytes += ofToken * int(info.Size())
	}
	return bytes, err
}

// goSource is the source of Go's standard library, or of this module on a machine that has Go
// without its source.
func goSource(most int) (text, origin string, err error) {
	for _, candidate := range []struct {
		root   func() string
		origin string
	}{{standardLibrary, "the source of Go's standard library"}, {thisModule, "this module's source"}} {
		root := candidate.root()
		if root == "" {
			continue
		}
		if text, err = goFiles(root, most); text != "" || err != nil {
			return text, candidate.origin, err
		}
	}
	return "", "", errors.New("there is no Go source on this machine to learn from; give it a text with -data FILE")
}

// standardLibrary is where the Go command has its source, empty if there is no Go command.
func standardLibrary() string {
	root := os.Getenv("GOROOT")
	if root == "" {
		answer, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			return ""
		}
		root = strings.TrimSpace(string(answer))
	}
	return filepath.Join(root, "src")
}

// thisModule is the folder that this program was compiled from.
func thisModule() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		return ""
	}
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// goFiles joins hand-written Go files in a mixed order that is the same every time, up to most
// bytes. Where that is more than corpusBytes, commands and tests are among them. Files beyond ASCII
// are left out, so that the alphabet stays small.
func goFiles(root string, most int) (string, error) {
	left := []string{"vendor", "testdata", "_gen"}
	if most <= corpusBytes {
		left = append(left, "cmd")
	}
	var paths []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if path == root {
				return fs.SkipAll
			}
			return err
		}
		if entry.IsDir() && slices.Contains(left, entry.Name()) {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".go") && (most > corpusBytes || !strings.HasSuffix(path, "_test.go")) {
			paths = append(paths, path)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("reading Go source: %w", err)
	}
	order := map[string]uint64{}
	for _, path := range paths {
		h := fnv.New64a()
		h.Write([]byte(strings.TrimPrefix(filepath.ToSlash(path), filepath.ToSlash(root))))
		order[path] = h.Sum64()
	}
	slices.SortFunc(paths, func(a, b string) int {
		switch {
		case order[a] < order[b]:
			return -1
		case order[a] > order[b]:
			return 1
		}
		return strings.Compare(a, b)
	})
	var text strings.Builder
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("reading Go source: %w", err)
		}
		if generated(content) || isTable(content) || slices.ContainsFunc(content, func(b byte) bool { return b >= 0x80 || b == '\r' }) {
			continue
		}
		if text.Len()+len(content) > most {
			break
		}
		text.Write(withoutLicence(content))
	}
	return text.String(), nil
}

// generated tells files that a program wrote, by the line that Go's convention asks them to have.
func generated(content []byte) bool {
	head := content[:min(len(content), 2000)]
	return bytes.Contains(head, []byte("// Code generated")) || bytes.Contains(head, []byte("DO NOT EDIT"))
}

// isTable tells files that are mostly numbers or names of constants, from which nothing of Go is
// learnt.
func isTable(content []byte) bool {
	digits, capitals := 0, 0
	for _, b := range content {
		switch {
		case '0' <= b && b <= '9':
			digits++
		case 'A' <= b && b <= 'Z':
			capitals++
		}
	}
	return 20*digits > len(content) || 100*capitals > 15*len(content)
}

// withoutLicence drops the comment that all files begin with, which would be what the model learns
// best.
func withoutLicence(content []byte) []byte {
	if bytes.HasPrefix(content, []byte("// Copyright")) {
		if _, rest, found := bytes.Cut(content, []byte("\n\n")); found {
			return rest
		}
	}
	return content
}
