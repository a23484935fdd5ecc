package kernels

import (
	"errors"
	"fmt"
	"time"
)

// Device is a place where tensors lie and kernels run. Work runs in the order in which it was asked
// for, so the output of one call may be the input of the next; a device whose work goes on beside
// the host's ([Device.Synchronize] waits for it) reports an error that it meets there from the next
// call that notices. Methods may be called from any goroutine.
type Device interface {
	// Name is what the device is called in messages: "cpu", "cuda:0".
	Name() string
	// Alloc returns a row-major tensor in the device's memory. Its contents are undefined.
	Alloc(dtype DType, shape ...int) (Tensor, error)
	// Owner returns what keeps the memory at a tensor's address alive, for a view that lost its
	// Tensor.Owner: nil where the address is not in the memory of a tensor of this device. The
	// host's memory is Go's, which needs no owner.
	Owner(t Tensor) any
	// Copy writes the elements of src into dst, which has the same shape; both may have any
	// strides. Each lies in the memory of this device or of the host. Between floats of different
	// types it rounds to nearest, ties to even; integers are copied as they are. When it returns,
	// the host's memory may be changed, or holds the copy.
	Copy(dst, src Tensor) error
	// Fill sets every element of a tensor of any strides to x, rounded to its dtype.
	Fill(t Tensor, x float64) error
	// Read asks for the element of a tensor that has one. It does not wait: the number is there
	// when the work that computes it is done, and is the one of this moment in the order of work,
	// whatever is written there later.
	Read(t Tensor) (Number, error)
	// Record marks this moment in the order of work.
	Record() (Event, error)
	// Synchronize waits until all work is done.
	Synchronize() error
}

// Number is a number that a device may still be computing.
type Number interface {
	// Float64 waits for the number.
	Float64() (float64, error)
}

// Event is a moment in the order of a device's work.
type Event interface {
	// Wait waits until the work before the event is done.
	Wait() error
	// Since waits for both events, of one device, and returns the time that passed on the device
	// between them.
	Since(earlier Event) (time.Duration, error)
}

// Recorder is a device that can queue a list of work again, as a whole, in the time of one launch.
type Recorder interface {
	// Capture records what work asks of the device, without running it. Nothing but work uses the
	// device until it returns. Work that waits for the device, or that moves data between it and
	// the host, cannot be recorded and is an error; after any error the device is as it was before.
	Capture(work func() error) (Recording, error)
	// Vary calls work with a device, and work asks that device for kernels. Within Capture, work is
	// called again before each launch, and the launch runs its kernels with the arguments of that
	// call. It is for kernels that depend on numbers which the host reads, such as the lengths of
	// packed sequences. Work must ask for the same kernels of the same tensors each time, and do
	// nothing else: nothing is computed before the launch. Its error is the launch's.
	Vary(work func(device Backend) error) error
}

// ErrOutgrown is in the error of a launch whose varying work needs more kernels than were recorded.
// Nothing was launched.
var ErrOutgrown = errors.New("there are more kernels than were recorded")

// Recording is work that was recorded.
type Recording interface {
	// Launch does the work again, in the memory in which it was recorded.
	Launch() error
	// SetDropoutStep makes later launches draw the masks of this step, whatever [Dropout.Step] was
	// recorded.
	SetDropoutStep(step uint32) error
}

// Rounder is a device that keeps float32 weights in 16 bits too, for products that read them so.
type Rounder interface {
	// Rounded returns a copy of weights in a 16-bit type, which may be theirs. The weights are
	// row-major matrices (in, out), and lie side by side in the copy, (in, all outs), if the layout
	// says nothing else. The first call makes the copy, and it lives as long as the weights. It is
	// up to date in each call, and in each launch of recorded work that asked for it: an
	// optimiser's update writes the copy too, and after other changes the weights are copied again.
	// Where the first call is one that is being recorded, it returns the zero Tensor.
	Rounded(dtype DType, layout RoundedLayout, weights ...Tensor) (Tensor, error)
}

// RoundedLayout is how the copy of weights lies in memory.
type RoundedLayout struct {
	// Blocks is for weights (rank, out) of any ranks, which are blocks of the copy, (all ranks, all
	// outs): each begins below and beside the one before it, the ranks at a multiple of 8. What is
	// in no block is 0.
	Blocks bool
	// Transposed is for a copy of that shape whose columns are contiguous, rather than its rows.
	Transposed bool
}

// CheckRounded returns what is wrong with a call of Rounded.
func CheckRounded(dtype DType, layout RoundedLayout, weights []Tensor) error {
	if dtype != BF16 && dtype != F16 {
		return fmt.Errorf("dtype is %v, it needs to be %v or %v", dtype, BF16, F16)
	}
	if len(weights) == 0 {
		return errors.New("there are no weights, it needs at least one")
	}
	for i, w := range weights {
		name := fmt.Sprintf("weights[%d]", i)
		switch {
		case len(w.Shape) != 2 && layout.Blocks:
			return fmt.Errorf("%s has shape %v, it needs two axes", name, w.Shape)
		case len(w.Shape) != 2 || !layout.Blocks && w.Shape[0] != weights[0].Shape[0]:
			return fmt.Errorf("%s has shape %v, it needs two axes, and as many rows as all others", name, w.Shape)
		}
		if err := checkOperands(operand{name: name, tensor: w, shape: w.Shape, dtypes: [2]DType{F32, dtype}, layout: dense}); err != nil {
			return err
		}
	}
	return nil
}

// CallError is the error of a device that was called with what it cannot take, or failed at what it
// was called for.
type CallError struct {
	Device string // its name
	Kernel string // such as "matmul"
	Err    error
}

func (e *CallError) Error() string { return fmt.Sprintf("%s: %s: %v", e.Device, e.Kernel, e.Err) }

// Unwrap returns Err.
func (e *CallError) Unwrap() error { return e.Err }

// Unsupported is the error of a device that is asked for what it cannot compute. It wraps
// [errors.ErrUnsupported].
type Unsupported struct {
	Device string // its name
	What   string // such as "matmul of float64"
}

func (u Unsupported) Error() string {
	return fmt.Sprintf("%s: %s is not supported there", u.Device, u.What)
}

// Unwrap returns errors.ErrUnsupported.
func (u Unsupported) Unwrap() error { return errors.ErrUnsupported }
