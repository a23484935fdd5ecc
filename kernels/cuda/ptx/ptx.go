// Package ptx reads compiled kernels, those of package cuda, which lie beside this file.
//
// What one source file is compiled to is a family. Its modules are nearly the same text, so they
// are packed together, in two files:
//
//	FAMILY.zst    all modules, one behind the other, as one frame of zstd
//	FAMILY.index  a line for each module in that order: its name, its length in what the frame
//	              unpacks to, and the digest of what it was compiled from
//
// Modules that the driver would take long to compile are there for Hopper too, as its compiler
// makes them: cubins, in FAMILY.cubins.zst and FAMILY.cubins.index. A cubin has the digest of the
// module that it was made of, and counts only where that is the module's.
//
// Numbers of registers and labels are taken out of a module's text and stand behind it: numbers.go
// says how and why. [Library.Text] unpacks a family when one of its modules is first asked for, and
// puts the numbers of that module back. The generator in _gen/ptx writes the files.
package ptx

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Module is one compiled module: what the driver loads at a time.
type Module struct {
	Name   string
	Digest string // of what it was compiled from
	Text   string // PTX, or the bytes of a cubin
}

// Library is a folder of families. Its methods may be called from any goroutine.
type Library struct {
	files         fs.FS
	texts, cubins packed
}

// packed are the families of one form of modules.
type packed struct {
	families map[string]*family
	places   map[string]place // of modules, by name
}

// cubinsSuffix ends the names of files of cubins, before .zst and .index.
const cubinsSuffix = ".cubins"

// family is one family, unpacked while its modules are in use.
type family struct {
	sync.Mutex
	name    string   // of its files
	modules []Module // without Text
	lengths []int
	content []byte // of the frame, nil while the family is packed
	forget  *time.Timer
}

// place is where a module lies in the content of its family.
type place struct {
	family    *family
	from, end int
	digest    string
}

// Open reads the indexes of a folder.
func Open(files fs.FS) (*Library, error) {
	l := &Library{files: files}
	for _, p := range []*packed{&l.texts, &l.cubins} {
		p.families, p.places = map[string]*family{}, map[string]place{}
	}
	indexes, err := fs.Glob(files, "*.index")
	if err != nil {
		return nil, err
	}
	for _, file := range indexes {
		index, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		to, name := &l.texts, strings.TrimSuffix(file, ".index")
		if strings.HasSuffix(name, cubinsSuffix) {
			to = &l.cubins
		}
		if err := to.add(name, string(index)); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return l, nil
}

// add adds a family by its index.
func (p *packed) add(name, index string) error {
	f := &family{name: name}
	at := 0
	for line := range strings.Lines(index) {
		m, length := Module{}, 0
		if _, err := fmt.Sscanf(line, "%s %d %s\n", &m.Name, &length, &m.Digest); err != nil {
			return fmt.Errorf("the line %q: %w", line, err)
		}
		if _, ok := p.places[m.Name]; ok || length < 0 {
			return fmt.Errorf("the line %q: the module is listed twice, or its length is negative", line)
		}
		f.modules, f.lengths = append(f.modules, m), append(f.lengths, length)
		p.places[m.Name] = place{f, at, at + length, m.Digest}
		at += length
	}
	p.families[strings.TrimSuffix(name, cubinsSuffix)] = f
	return nil
}

// Pack returns what a family of the given modules is: the content of its frame, and its index.
func Pack(modules []Module) (content []byte, index string, err error) {
	var lines strings.Builder
	for _, m := range modules {
		from := len(content)
		if content, err = withoutNumbers(content, m.Text); err != nil {
			return nil, "", fmt.Errorf("%s: %w", m.Name, err)
		}
		fmt.Fprintln(&lines, m.Name, len(content)-from, m.Digest)
	}
	return content, lines.String(), nil
}

// PackCubins is Pack of cubins.
func PackCubins(modules []Module) (content []byte, index string) {
	var lines strings.Builder
	for _, m := range modules {
		content = append(content, m.Text...)
		fmt.Fprintln(&lines, m.Name, len(m.Text), m.Digest)
	}
	return content, lines.String()
}

// Families lists the families in the order of their names.
func (l *Library) Families() []string { return slices.Sorted(maps.Keys(l.texts.families)) }

// Family returns the modules of a family, with their text. There are none where there is no such
// family.
func (l *Library) Family(name string) ([]Module, error) {
	return l.texts.family(name, l.Text)
}

// Cubins is Family of the family's cubins, some of which may be of other versions of their modules.
func (l *Library) Cubins(name string) ([]Module, error) { return l.cubins.family(name, l.cubin) }

func (p packed) family(name string, read func(module string) (string, error)) ([]Module, error) {
	f := p.families[name]
	if f == nil {
		return nil, nil
	}
	var modules []Module
	for _, m := range f.modules {
		var err error
		if m.Text, err = read(m.Name); err != nil {
			return nil, err
		}
		modules = append(modules, m)
	}
	return modules, nil
}

// Text returns the PTX of a module.
func (l *Library) Text(module string) (string, error) {
	p, ok := l.texts.places[module]
	if !ok {
		return "", fmt.Errorf("there is no compiled kernel %s in this program: go generate -tags gpu ./kernels/cuda compiles them", module)
	}
	content, err := l.unpacked(p.family)
	if err != nil {
		return "", fmt.Errorf("the compiled kernel %s: %w", module, err)
	}
	text, err := withNumbers(content[p.from:p.end])
	if err != nil {
		return "", fmt.Errorf("the compiled kernel %s in %s.zst: %w", module, p.family.name, err)
	}
	return text, nil
}

// HasCubin reports whether a module has a cubin that was made of its present PTX.
func (l *Library) HasCubin(module string) bool {
	c, ok := l.cubins.places[module]
	return ok && c.digest == l.texts.places[module].digest
}

// Cubin returns the cubin of a module that has one.
func (l *Library) Cubin(module string) (string, error) {
	if !l.HasCubin(module) {
		return "", fmt.Errorf("there is no cubin of the kernel %s as it is: go generate -tags gpu ./kernels/cuda compiles it", module)
	}
	return l.cubin(module)
}

func (l *Library) cubin(module string) (string, error) {
	p := l.cubins.places[module]
	content, err := l.unpacked(p.family)
	if err != nil {
		return "", fmt.Errorf("the cubin of the kernel %s: %w", module, err)
	}
	return string(content[p.from:p.end]), nil
}

// unpacked returns the content of a family. It is forgotten when nobody has asked for a while: a
// program loads what it uses at its start, and all families together take 152 MB of PTX and 64 of
// cubins.
func (l *Library) unpacked(f *family) ([]byte, error) {
	const patience = 10 * time.Second
	f.Lock()
	defer f.Unlock()
	if f.content == nil {
		content, err := l.unpack(f)
		if err != nil {
			return nil, err
		}
		f.content = content
		f.forget = time.AfterFunc(patience, func() {
			f.Lock()
			defer f.Unlock()
			f.content = nil
		})
	}
	f.forget.Reset(patience)
	return f.content, nil
}

func (l *Library) unpack(f *family) ([]byte, error) {
	length := 0
	for _, n := range f.lengths {
		length += n
	}
	packed, err := fs.ReadFile(l.files, f.name+".zst")
	if err != nil {
		return nil, err
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	content, err := decoder.DecodeAll(packed, make([]byte, 0, length))
	if err != nil {
		return nil, fmt.Errorf("%s.zst: %w", f.name, err)
	}
	if len(content) != length {
		return nil, fmt.Errorf("%s.zst unpacks to %d bytes, its index has %d", f.name, len(content), length)
	}
	return content, nil
}
