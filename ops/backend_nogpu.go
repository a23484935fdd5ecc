//go:build !gpu

package ops

import (
	"errors"

	"gorgonia.org/tensor"
)

func countDevices() int { return 0 }

func openDevice(int) (*Device, error) {
	return nil, errors.New("this program was built without GPUs: build it with -tags gpu")
}

func deviceOf(*tensor.Dense) (*Device, error) {
	return nil, errors.New("is in the memory of a device, this build computes on the host only")
}
