//go:build gpu

package driver

/*
#include <stdlib.h>
#include "compiler_linux.h"
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"unsafe"

	"gorgonia.org/cu"
)

// Compiler is NVIDIA's run-time compiler, NVRTC, which compiles the kernels of scores and masks
// that users write. The module does not link it: it is looked for when such a kernel is first
// needed.
type Compiler struct {
	c             C.Compiler
	Version, Path string
}

// FindCompiler opens NVRTC: the newest that the driver's own version goes with. What it finds, or
// does not, stays so.
var FindCompiler = sync.OnceValues(func() (*Compiler, error) {
	var problem error
	for _, path := range compilerPaths() {
		found := &Compiler{}
		name := C.CString(path)
		why := C.openCompiler(name, &found.c)
		C.free(unsafe.Pointer(name))
		if why == nil {
			found.Version, found.Path = fmt.Sprintf("%d.%d", found.c.major, found.c.minor), C.GoString(found.c.path)
			return found, nil
		}
		if fileExists(path) || problem == nil {
			problem = fmt.Errorf("%s", C.GoString(why))
		}
	}
	return nil, problem
})

// CompilerSearch is what FindCompiler depends on, but for files.
func CompilerSearch() string {
	search := fmt.Sprint("driver ", cu.Version())
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME", "PATH", "LD_LIBRARY_PATH"} {
		search += fmt.Sprintf(" %s=%q", name, os.Getenv(name))
	}
	return search
}

// compilerPaths are where NVRTC may be: where the system looks for libraries, in a toolkit, and in
// Python's packages.
func compilerPaths() []string {
	var folders []string
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if at := os.Getenv(name); at != "" {
			folders = append(folders, at+"/lib64", at+"/lib")
		}
	}
	folders = append(folders, "/usr/local/cuda/lib64")
	prefixes := []string{os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX"), "/usr/local", "/usr"}
	if home, err := os.UserHomeDir(); err == nil {
		prefixes = append(prefixes, home+"/.local")
	}
	if python, err := exec.LookPath("python3"); err == nil {
		prefixes = append(prefixes, filepath.Dir(filepath.Dir(python)))
	}
	for _, prefix := range prefixes {
		if prefix == "" {
			continue
		}
		for _, packages := range []string{"site-packages", "dist-packages"} {
			for _, library := range []string{"cu13", "cuda_nvrtc"} {
				found, _ := filepath.Glob(prefix + "/lib/python3*/" + packages + "/nvidia/" + library + "/lib")
				folders = append(folders, found...)
			}
		}
	}
	versions := []string{"libnvrtc.so.13", "libnvrtc.so.12"}
	if v := cu.Version(); v > 0 && v < 13000 { // whose drivers load no code of the other's
		slices.Reverse(versions)
	}
	var list []string
	for _, version := range versions {
		list = append(list, version)
		for _, folder := range folders {
			if path := filepath.Join(folder, version); fileExists(path) {
				list = append(list, path)
			}
		}
	}
	return list
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Compile makes a cubin of a source that includes the given headers.
func (c *Compiler) Compile(source string, headers map[string]string, options []string) ([]byte, error) {
	var texts, names []string
	for name, text := range headers {
		texts, names = append(texts, text), append(names, name)
	}
	text := C.CString(source)
	defer C.free(unsafe.Pointer(text))
	cTexts, freeTexts := cStrings(texts)
	defer freeTexts()
	cNames, freeNames := cStrings(names)
	defer freeNames()
	cOptions, freeOptions := cStrings(options)
	defer freeOptions()
	var image, log *C.char
	var bytes C.size_t
	result := C.compileProgram(&c.c, text, C.int(len(names)), cTexts, cNames, C.int(len(options)), cOptions, &image, &bytes, &log)
	defer C.free(unsafe.Pointer(image))
	defer C.free(unsafe.Pointer(log))
	if result != 0 {
		err := fmt.Errorf("%s", C.GoString(C.describeResult(&c.c, result)))
		if log != nil {
			err = fmt.Errorf("%w: %s", err, C.GoString(log))
		}
		return nil, err
	}
	return C.GoBytes(unsafe.Pointer(image), C.int(bytes)), nil
}

// cStrings copies strings to memory of C's, which free gives back.
func cStrings(list []string) (array **C.char, free func()) {
	const pointer = C.size_t(unsafe.Sizeof(uintptr(0)))
	array = (**C.char)(C.malloc(C.size_t(len(list)+1) * pointer))
	items := unsafe.Slice(array, len(list))
	for n, s := range list {
		items[n] = C.CString(s)
	}
	return array, func() {
		for _, s := range items {
			C.free(unsafe.Pointer(s))
		}
		C.free(unsafe.Pointer(array))
	}
}
