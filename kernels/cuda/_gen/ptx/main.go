// Compiles every kernel in src to PTX and packs it into ptx, from where the package embeds it: one module for each variant
// in the package's tables, and the modules of small kernels. Run it as the package's go:generate line does, in the
// package's folder:
//
//	go generate -tags gpu ./kernels/cuda
//
// It needs nvcc of the CUDA Toolkit 12.4, in the PATH or as $NVCC, because the PTX of a release runs on every driver since
// that release's, and because the output is compared byte by byte. Where nvcc does not take the machine's C++ compiler, name
// an older one in NVCC_PREPEND_FLAGS, as in '-ccbin g++-12'.
//
// A packed module carries the digest of what it was compiled from. A module whose digest is that of the sources is left
// as it is; -all compiles it too.
package main

import (
	"bytes"
	"compress/gzip"
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
)

const release = "12.4"

// module is what one run of nvcc compiles.
type module struct {
	Name, Source, Arch string
	Defines            []string
	Digest             string
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
	if err := os.MkdirAll("ptx", 0o777); err != nil {
		return err
	}
	var group sync.WaitGroup
	failures := make([]error, len(modules))
	turns := make(chan struct{}, jobs)
	for i, m := range modules {
		if !strings.Contains(m.Name, only) || !all && m.isCompiled() {
			continue
		}
		group.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			failures[i] = m.compile(nvcc)
		})
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	return removeOthers(modules)
}

// removeOthers removes modules that are no longer listed.
func removeOthers(modules []module) error {
	files, err := filepath.Glob("ptx/*.ptx.gz")
	if err != nil {
		return err
	}
	for _, file := range files {
		listed := slices.ContainsFunc(modules, func(m module) bool { return file == m.file() })
		if !listed {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m module) file() string { return filepath.Join("ptx", m.Name+".ptx.gz") }

// isCompiled reports whether the packed module is that of the sources.
func (m module) isCompiled() bool {
	file, err := os.Open(m.file())
	if err != nil {
		return false
	}
	defer file.Close()
	reader, err := gzip.NewReader(file)
	return err == nil && reader.Comment == m.Digest
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

// list asks the package's tables which modules there are. They stand in files that need neither C nor a GPU, so they are
// copied beside a main function that prints them.
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

func (m module) compile(nvcc string) error {
	folder, err := os.MkdirTemp("", "stheno-ptx")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	out := filepath.Join(folder, m.Name+".ptx")
	arguments := []string{"-std=c++17", "-O3", "-arch=" + m.Arch, "-ptx", "-o", out}
	for _, define := range m.Defines {
		arguments = append(arguments, "-D"+define)
	}
	command := exec.Command(nvcc, append(arguments, "src/"+m.Source)...)
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", m.Name, err, text)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	writer, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	writer.Comment = m.Digest
	if _, err := writer.Write(text); err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return os.WriteFile(m.file(), packed.Bytes(), 0o666)
}
