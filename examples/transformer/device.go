package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"github.com/stheno-ml/stheno/train/distributed"
)

// deviceName is what -device may be.
var deviceName = regexp.MustCompile(`^(auto|cpu|cuda(:[0-9]{1,3})?)$`)

// openDevice opens what -device names, nil for the CPU, and says what that is, or why it is not a GPU.
func openDevice(name string, rank *distributed.Group) (device *ops.Device, says string, err error) {
	if name == "cpu" {
		return nil, "the CPU", nil
	}
	index := gpuOf(rank)
	if digits := deviceName.FindStringSubmatch(name)[2]; digits != "" {
		if index, err = strconv.Atoi(digits[1:]); err != nil {
			return nil, "", fmt.Errorf("-device is %q: %w", name, err)
		}
	}
	device, err = ops.OpenDevice(index)
	switch {
	case err == nil:
		return device, device.String(), nil
	case name == "auto":
		return nil, fmt.Sprintf("the CPU (%s)", strings.TrimPrefix(err.Error(), "OpenDevice: ")), nil
	}
	return nil, "", fmt.Errorf("-device is %q: %w", name, err)
}

// newParameters makes the values of a model on a device.
func newParameters(seed uint64, device *ops.Device) (*nn.Parameters, error) {
	p := nn.NewParameters(seed)
	if device == nil {
		return p, nil
	}
	return p, p.MoveTo(device)
}
