//go:build gpu

package cuda

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/internal/guard"
	"github.com/stheno-ml/stheno/kernels/cuda/driver"
)

// This file compiles kernels while a program runs, from our sources and what a user wrote, and
// keeps them on disk.

// kernelSources are what such kernels are compiled from. Those of nvrtc stand for headers of a
// toolkit.
//
//go:embed src/*.cuh src/attention_user*.cu src/nvrtc
var kernelSources embed.FS

// kernelHeaders are the sources by the names under which they include each other.
var kernelHeaders = sync.OnceValue(func() map[string]string {
	headers := map[string]string{}
	for _, folder := range []string{"src", "src/nvrtc"} {
		entries, _ := kernelSources.ReadDir(folder)
		for _, e := range entries {
			if text, err := kernelSources.ReadFile(folder + "/" + e.Name()); err == nil {
				headers[e.Name()] = string(text)
			}
		}
	}
	return headers
})

// kernelDigest tells one state of the sources from another.
var kernelDigest = sync.OnceValue(func() string {
	hash := sha256.New()
	headers := kernelHeaders()
	var names []string
	for name := range headers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(hash, "%s %d\n%s", name, len(headers[name]), headers[name])
	}
	return hex.EncodeToString(hash.Sum(nil))
})

// NoCompiler is the error of attention whose kernels are compiled when they are first met where
// NVIDIA's run-time compiler, NVRTC, is not found. It wraps errors.ErrUnsupported.
type NoCompiler struct {
	Device string
	Reason error // why the last place that was tried has none
}

func (e NoCompiler) Error() string {
	return fmt.Sprintf("%s: a score or mask of one's own, and dropout or slopes of a sequence that ranks share, are compiled by NVRTC, "+
		"which is not found (%v): it comes with the CUDA toolkit, named by CUDA_HOME, and with `pip install nvidia-cuda-nvrtc`, "+
		"or nvidia-cuda-nvrtc-cu12 for drivers of CUDA 12", e.Device, e.Reason)
}

// Unwrap returns errors.ErrUnsupported and the reason.
func (e NoCompiler) Unwrap() []error { return []error{errors.ErrUnsupported, e.Reason} }

// tellCompile tells who listens by OnCompile.
func tellCompile(format string, args ...any) { compileListeners.tell(fmt.Sprintf(format, args...)) }

// userModule is a kernel to be compiled: a source, and the text of user_program.cuh.
type userModule struct {
	source, program string
	defines         []string
	arch            string
	placed          bool // it is compiled for the places of a problem, not for a score or mask
}

// name is that of the module, and of its kernel: it says all that makes the code.
func (m userModule) name() string {
	hash := sha256.New()
	fmt.Fprintf(hash, "%s %s %q %s %d\n%s", m.source, m.arch, m.defines, kernelDigest(), len(m.program), m.program)
	return strings.TrimSuffix(m.source, ".cu") + "_" + hex.EncodeToString(hash.Sum(nil)[:16])
}

// compiling has a lock for each module by name, which is held while it is loaded: modules are
// compiled beside each other, and none of them twice.
var compiling sync.Map

// lockModule locks a module until the function it gives is called.
func lockModule(m userModule) (unlock func()) {
	lock, _ := compiling.LoadOrStore(m.name(), &sync.Mutex{})
	lock.(*sync.Mutex).Lock()
	return lock.(*sync.Mutex).Unlock
}

// loadUser loads modules unless they are there: from disk, or else from the compiler, which makes
// all that are missing at a time.
func (d *Device) loadUser(modules ...userModule) error {
	missing := func() (list []userModule) {
		for _, m := range modules {
			if !d.HasModule(m.name()) {
				list = append(list, m)
			}
		}
		return list
	}
	if len(missing()) == 0 {
		return nil
	}
	slices.SortFunc(modules, func(a, b userModule) int { return strings.Compare(a.name(), b.name()) }) // for locks
	for _, m := range modules {
		defer lockModule(m)()
	}
	version, err := compilerVersion()
	if err != nil {
		return NoCompiler{d.Name(), err}
	}
	for _, m := range missing() {
		if image, ok := readImage(imagePath(m.name(), version)); ok {
			d.AddModule(m.name(), string(image)) // one that the driver refuses is compiled
		}
	}
	if list := missing(); len(list) > 0 {
		return d.compileUser(list)
	}
	return nil
}

// compileUser compiles modules, loads them and keeps them on disk.
func (d *Device) compileUser(modules []userModule) error {
	c, err := driver.FindCompiler()
	if err != nil {
		return NoCompiler{d.Name(), err}
	}
	began := time.Now()
	whats, images, failures := make([]string, len(modules)), make([][]byte, len(modules)), make([]error, len(modules))
	var group sync.WaitGroup
	for n, m := range modules {
		whats[n] = m.what()
		group.Go(func() {
			failures[n] = guard.Call("the compiler", func() (err error) { images[n], err = m.compile(c); return err })
		})
	}
	purpose := "for a score or mask of one's own"
	if modules[0].placed {
		purpose = "with dropout or slopes of a sequence that ranks share"
	}
	tellCompile("%s: compiling attention %s: %s", d.Name(), purpose, strings.Join(whats, ", "))
	group.Wait()
	for n, m := range modules {
		if err := failures[n]; err != nil {
			return fmt.Errorf("%s: NVRTC %s compiles %s for %s: %w", d.Name(), c.Version, m.source, m.arch, err)
		}
	}
	tellCompile("%s: compiled in %.1f s, and kept for the next time", d.Name(), time.Since(began).Seconds())
	for n, m := range modules {
		if err := d.AddModule(m.name(), string(images[n])); err != nil {
			return err
		}
		writeImage(imagePath(m.name(), c.Version), images[n])
	}
	return nil
}

// what says for people what a module computes.
func (m userModule) what() string {
	for _, part := range []struct{ in, name string }{{"forward", "forward"}, {"backward", "backward"}, {"lists", "what the mask shows"}, {"confine", "what is not finite"}} {
		if strings.Contains(m.source, part.in) {
			return part.name
		}
	}
	return "the bias's gradient"
}

// compile makes a cubin.
func (m userModule) compile(c *driver.Compiler) ([]byte, error) {
	options := []string{"--gpu-architecture=" + m.arch, "--std=c++17", "--device-as-default-execution-space", "--diag-suppress=177", "-DKERNEL=" + m.name()}
	for _, define := range m.defines {
		options = append(options, "-D"+define)
	}
	headers := maps.Clone(kernelHeaders())
	headers["user_program.cuh"] = m.program
	return c.Compile(headers[m.source], headers, options)
}

// keptIn is the folder in which modules are kept, "" where a user has no place for such files.
func keptIn() string {
	folder, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(folder, "stheno", "kernels")
}

// imagePath is where a compiled module is kept.
func imagePath(name, version string) string {
	folder := keptIn()
	if folder == "" {
		return ""
	}
	return filepath.Join(folder, name+"-nvrtc"+version+".cubin")
}

// compilerVersion is the version of the compiler that driver.FindCompiler opens. To open it takes
// up to a tenth of a second, so what it was is kept beside the modules, and counts as long as the
// library's file and all that says where to look for it are the same.
var compilerVersion = sync.OnceValues(func() (string, error) { return versionKept(keptIn(), driver.CompilerSearch(), driver.FindCompiler) })

func versionKept(folder, search string, find func() (*driver.Compiler, error)) (string, error) {
	path := ""
	if folder != "" {
		path = filepath.Join(folder, "compiler")
	}
	if kept, ok := readImage(path); ok {
		fields := strings.Split(string(kept), "\n")
		if len(fields) == 4 && fields[0] == search && fields[2] == fileState(fields[1]) && fields[2] != "" {
			return fields[3], nil
		}
	}
	c, err := find()
	if err != nil {
		return "", err
	}
	if state := fileState(c.Path); state != "" {
		writeImage(path, []byte(strings.Join([]string{search, c.Path, state, c.Version}, "\n")))
	}
	return c.Version, nil
}

// fileState tells one state of a file from others, and is "" where there is none.
func fileState(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(info.Size(), " ", info.ModTime().UnixNano())
}

// readImage reads a kept module. A file begins with the digest of the rest: one that is damaged
// does not count.
func readImage(path string) (image []byte, ok bool) {
	file, err := os.ReadFile(path)
	if err != nil || len(file) < sha256.Size {
		return nil, false
	}
	image = file[sha256.Size:]
	digest := sha256.Sum256(image)
	return image, string(digest[:]) == string(file[:sha256.Size])
}

// writeImage keeps a module: under a name of its own first, so that other processes find the whole
// file or none. A module that cannot be kept is compiled again the next time, and nothing else.
func writeImage(path string, image []byte) {
	if path == "" || os.MkdirAll(filepath.Dir(path), 0o700) != nil {
		return
	}
	file, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return
	}
	digest := sha256.Sum256(image)
	_, err = file.Write(append(digest[:], image...))
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		os.Remove(file.Name())
	}
}
