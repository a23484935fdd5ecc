//go:build !gpu

package cuda

import "testing"

// The package's tests are compiled with the tag gpu, like the package.
func TestOnAGPU(t *testing.T) { t.Skip("built without -tags gpu") }
