//go:build !gpu

package main

import "errors"

// gpuName is the name of the GPU that gpu measures: none.
func gpuName() string { return "" }

// gpu says why there are no figures of a GPU.
func gpu(s *session) error {
	s.missing("GPU", errors.New("the program was built without -tags gpu"))
	return nil
}
