//go:build gpu

package driver

// libcuda.a, which is empty, is there for gorgonia.org/cu, which asks the linker for a libcuda:
// library_linux.c has the functions already. A true libcuda found beside it is not needed either,
// and so not made a need of the program.

/*
#cgo LDFLAGS: -Wl,--as-needed -L${SRCDIR} -ldl
#include "library_linux.h"
*/
import "C"

import "fmt"

// driverProblem returns why the driver does not work, or nil.
func driverProblem() error {
	state := C.driverState()
	switch problem := C.GoString(&state.problem[0]); {
	case state.result == 0:
		return nil
	case problem != "":
		return fmt.Errorf("%s", problem)
	}
	return fmt.Errorf("cuInit: %w", driverError(state.result))
}
