// Compiles every kernel in src to PTX and packs it into the folder ptx: one module for each variant
// in the package's tables, and the modules of small kernels. What one source is compiled to is a
// family, packed as package ptx describes. Run it as the package's go:generate line does, in the
// package's folder:
//
//	go generate -tags gpu ./kernels/cuda
//
// It needs nvcc of the CUDA Toolkit 12.4, in the PATH or as $NVCC: the PTX of a release runs on
// every driver since that release's, and the same release makes the same bytes on every machine.
// Where nvcc does not take the machine's C++ compiler, name an older one in NVCC_PREPEND_FLAGS, as
// in '-ccbin g++-12'. To pack what has changed it needs zstd: the best compressor in Go makes the
// families larger by 30 %.
//
// A module keeps the digest of what it was compiled from. A module whose digest is that of the
// sources is left as it is; -all compiles it too. A family is packed anew only where a module's
// text has changed: two versions of zstd may pack the same text differently.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/stheno-ml/stheno/kernels/cuda/ptx"
)

const (
	release       = "12.4"
	cubinsRelease = "13.0"
	packed        = "ptx" // the folder
)

// module is what one run of nvcc compiles.
type module struct {
	Name, Source, Arch string
	Defines            []string
	Digest             string
	Cubin              bool
}

func main() {
	only := flag.String("only", "", "compile modules whose name contains this, and leave the others as they are")
	all := flag.Bool("all", false, "compile also what has not changed")
	jobs := flag.Int("jobs", runtime.NumCPU(), "compilations at a time")
	flag.Parse()
	if err := run(*only, *all, *jobs); err != nil {
		fmt.Fprintln(os.Stderr, "ptx:", err)
		os.Exit(1)
	}
}

func run(only string, all bool, jobs int) error {
	nvcc, err := compiler()
	if err != nil {
		return err
	}
	modules, err := list()
	if err != nil {
		return err
	}
	library, err := ptx.Open(os.DirFS(packed))
	if err != nil {
		return err
	}
	compiled, cubins, err := unpack(library)
	if err != nil {
		return err
	}
	ptxas, err := assembler()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ptx: no cubin is compiled:", err)
	}
	var group sync.WaitGroup
	var mutex sync.Mutex // guards compiled
	failures := make([]error, len(modules))
	turns := make(chan struct{}, jobs)
	for i, m := range modules {
		compiles := all || compiled[m.Name].Digest != m.Digest
		assembles := m.Cubin && ptxas != "" && (all || cubins[m.Name].Digest != m.Digest)
		if !strings.Contains(m.Name, only) || !compiles && !assembles {
			continue
		}
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			mutex.Lock()
			made := compiled[m.Name]
			mutex.Unlock()
			var err error
			if compiles {
				made = ptx.Module{Name: m.Name, Digest: m.Digest}
				made.Text, err = m.compile(nvcc)
			}
			code := ptx.Module{Name: m.Name, Digest: m.Digest}
			if err == nil && assembles {
				code.Text, err = assemble(ptxas, made)
			}
			if failures[i] = err; err == nil {
				mutex.Lock()
				defer mutex.Unlock()
				compiled[m.Name] = made
				if assembles {
					cubins[m.Name] = code
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return pack(library, modules, compiled, cubins)
}

// unpack returns all modules of a library by name, and their cubins.
func unpack(library *ptx.Library) (texts, cubins map[string]ptx.Module, err error) {
	texts, cubins = map[string]ptx.Module{}, map[string]ptx.Module{}
	for _, name := range library.Families() {
		for _, kind := range []struct {
			read func(string) ([]ptx.Module, error)
			to   map[string]ptx.Module
		}{{library.Family, texts}, {library.Cubins, cubins}} {
			family, err := kind.read(name)
			if err != nil {
				return nil, nil, err
			}
			for _, m := range family {
				kind.to[m.Name] = m
			}
		}
	}
	return texts, cubins, nil
}

// pack writes the families of the listed modules, in the order of the list, and removes the
// families that have none.
func pack(library *ptx.Library, modules []module, compiled, cubins map[string]ptx.Module) error {
	families, ofCubins := map[string][]ptx.Module{}, map[string][]ptx.Module{}
	for _, m := range modules {
		if c, ok := compiled[m.Name]; ok { // not left out by -only
			name := strings.TrimSuffix(m.Source, ".cu")
			families[name] = append(families[name], c)
			if c, ok := cubins[m.Name]; ok && m.Cubin {
				ofCubins[name] = append(ofCubins[name], c)
			}
		}
	}
	var group sync.WaitGroup
	var mutex sync.Mutex // guards failure
	var failure error
	for name, family := range families {
		group.Go(func() {
			err := errors.Join(packFamily(library, name, family), packCubins(library, name, ofCubins[name]))
			mutex.Lock()
			defer mutex.Unlock()
			failure = errors.Join(failure, err)
		})
	}
	group.Wait()
	for _, name := range library.Families() {
		if len(families[name]) == 0 {
			path := filepath.Join(packed, name)
			failure = errors.Join(failure, os.Remove(path+".zst"), os.Remove(path+".index"), packCubins(library, name, nil))
		}
	}
	return failure
}

// packFamily writes the files of a family that have changed.
func packFamily(library *ptx.Library, name string, family []ptx.Module) error {
	before, err := library.Family(name)
	if err != nil {
		return err
	}
	if slices.Equal(family, before) {
		return nil
	}
	content, index, err := ptx.Pack(family)
	if err != nil {
		return err
	}
	contentBefore, _, err := ptx.Pack(before)
	if err != nil {
		return err
	}
	path := filepath.Join(packed, name)
	if !bytes.Equal(content, contentBefore) {
		if err := compress(path+".zst", content); err != nil {
			return fmt.Errorf("packing %s: %w", name, err)
		}
	}
	return os.WriteFile(path+".index", []byte(index), 0o666)
}

// packCubins writes the files of a family's cubins that have changed, and removes them if there are
// none.
func packCubins(library *ptx.Library, name string, cubins []ptx.Module) error {
	before, err := library.Cubins(name)
	if err != nil || slices.Equal(cubins, before) {
		return err
	}
	path := filepath.Join(packed, name+".cubins")
	if len(cubins) == 0 {
		return errors.Join(os.Remove(path+".zst"), os.Remove(path+".index"))
	}
	content, index := ptx.PackCubins(cubins)
	if contentBefore, _ := ptx.PackCubins(before); !bytes.Equal(content, contentBefore) {
		if err := compress(path+".zst", content); err != nil {
			return fmt.Errorf("packing the cubins of %s: %w", name, err)
		}
	}
	return os.WriteFile(path+".index", []byte(index), 0o666)
}

// compress writes a file that zstd makes of the content.
func compress(file string, content []byte) error {
	command := exec.Command("zstd", "--ultra", "-22", "--long=27", fmt.Sprintf("--stream-size=%d", len(content)), "-qf", "-o", file)
	command.Stdin = bytes.NewReader(content)
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: install zstd\n%s", err, text)
	}
	return nil
}

// compiler finds nvcc and makes sure that it is the right one.
func compiler() (string, error) {
	nvcc := os.Getenv("NVCC")
	if nvcc == "" {
		nvcc = "nvcc"
	}
	version, err := exec.Command(nvcc, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w: install the CUDA Toolkit %s, or name its compiler in $NVCC", nvcc, err, release)
	}
	found := regexp.MustCompile(`release ([\d.]+)`).FindSubmatch(version)
	if found == nil || string(found[1]) != release {
		return "", fmt.Errorf("%s is not of release %s: install that release of the CUDA Toolkit, or name its compiler in $NVCC\n%s", nvcc, release, version)
	}
	return nvcc, nil
}

// assembler finds ptxas and makes sure that it is the right one.
func assembler() (string, error) {
	ptxas := os.Getenv("PTXAS")
	if ptxas == "" {
		ptxas = "ptxas"
	}
	version, err := exec.Command(ptxas, "--version").Output()
	if err != nil || !bytes.Contains(version, []byte("release "+cubinsRelease+",")) {
		return "", fmt.Errorf("%s is not of release %s: name one in $PTXAS, such as that of the Python package nvidia-cuda-nvcc 13.0.88", ptxas, cubinsRelease)
	}
	return ptxas, nil
}

// assemble makes a cubin of a module.
func assemble(ptxas string, m ptx.Module) (string, error) {
	folder, err := os.MkdirTemp("", "stheno-cubin")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	in, out := filepath.Join(folder, m.Name+".ptx"), filepath.Join(folder, m.Name+".cubin")
	if err := os.WriteFile(in, []byte(m.Text), 0o666); err != nil {
		return "", err
	}
	if text, err := exec.Command(ptxas, "-arch=sm_90a", in, "-o", out).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", m.Name, err, text)
	}
	code, err := os.ReadFile(out)
	return string(code), err
}

// list asks the package's tables which modules there are. They stand in files that need neither C
// nor a GPU, so they are copied beside a main function that prints them.
func list() ([]module, error) {
	folder, err := os.MkdirTemp("_gen/ptx", "list")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	files, err := filepath.Glob("variant*.go")
	if err != nil {
		return nil, err
	}
	for _, file := range append(files, "arguments.go", "modules.go") {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		text = bytes.Replace(text, []byte("\npackage cuda\n"), []byte("\npackage main\n"), 1)
		if err := os.WriteFile(filepath.Join(folder, file), text, 0o666); err != nil {
			return nil, err
		}
	}
	const printer = `package main

import (
	"encoding/json"
	"os"
)

// Package driver has these, and needs C.
type (
	address  uintptr
	readable uintptr
	writable uintptr
)

func main() {
	modules, err := compiledModules()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(modules)
	}
	if err != nil {
		panic(err)
	}
}
`
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(printer), 0o666); err != nil {
		return nil, err
	}
	command := exec.Command("go", "run", "-tags", "gpu", "./"+folder)
	command.Stderr = os.Stderr
	text, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the variants: %w", err)
	}
	var modules []module
	return modules, json.Unmarshal(text, &modules)
}

func (m module) compile(nvcc string) (string, error) {
	folder, err := os.MkdirTemp("", "stheno-ptx")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	out := filepath.Join(folder, m.Name+".ptx")
	arguments := []string{"-std=c++17", "-O3", "-arch=" + m.Arch, "-ptx", "-o", out}
	for _, define := range m.Defines {
		arguments = append(arguments, "-D"+define)
	}
	command := exec.Command(nvcc, append(arguments, "src/"+m.Source)...)
	if text, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", m.Name, err, text)
	}
	text, err := os.ReadFile(out)
	return string(text), err
}
