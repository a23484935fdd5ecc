//go:build gpu && !linux

package driver

import (
	"errors"
	"runtime"
)

// Compiler is NVIDIA's run-time compiler, which is opened on Linux alone.
type Compiler struct{ Version, Path string }

func FindCompiler() (*Compiler, error) {
	return nil, errors.New("it is not looked for on " + runtime.GOOS)
}

func CompilerSearch() string { return "" }

func (c *Compiler) Compile(source string, headers map[string]string, options []string) ([]byte, error) {
	_, err := FindCompiler()
	return nil, err
}
