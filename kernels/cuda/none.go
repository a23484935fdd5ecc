//go:build !gpu

package cuda

import (
	"errors"

	"github.com/stheno-ml/stheno/kernels"
)

// Device is a GPU, of which a program that was built without the tag gpu has none.
type Device struct{ kernels.Backend }

// Count is 0.
func Count() int { return 0 }

// Open returns an error that says how to build a program for GPUs.
func Open(int) (*Device, error) {
	return nil, errors.New("built without GPUs: build with -tags gpu")
}

// Description is empty.
func (d *Device) Description() string { return "" }
