//go:build gpu

package nccl

import (
	"slices"
	"strings"
	"testing"
)

// A library that is missing, or not the right one, is an error that says what to do. The library is
// opened once a process, so this asks for the paths and opens them itself.
func TestMissingNCCL(t *testing.T) {
	t.Setenv(variable, "/nowhere/libnccl.so.2")
	if found := paths(); !slices.Equal(found, []string{"/nowhere/libnccl.so.2"}) {
		t.Fatalf("the paths are %q with %s set", found, variable)
	}
	err := load()
	for _, part := range []string{"there is no NCCL", "libnccl2", "nvidia-nccl-cu12", variable, "/nowhere/libnccl.so.2: "} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("the error is %v, it needs to say %q", err, part)
		}
	}
	t.Setenv(variable, "libm.so.6")
	if err := load(); err == nil || !strings.Contains(err.Error(), "it has no ncclGetVersion") {
		t.Errorf("the mathematical library serves as NCCL: %v", err)
	}
}
