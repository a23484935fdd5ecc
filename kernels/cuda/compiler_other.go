//go:build gpu && !linux

package cuda

import (
	"errors"
	"runtime"
)

// compiler is NVIDIA's run-time compiler, which is opened on Linux alone.
type compiler struct{ version, path string }

func findCompiler() (*compiler, error) {
	return nil, errors.New("it is not looked for on " + runtime.GOOS)
}

func compilerSearch() string { return "" }

func (c *compiler) compile(source string, headers map[string]string, options []string) ([]byte, error) {
	_, err := findCompiler()
	return nil, err
}
