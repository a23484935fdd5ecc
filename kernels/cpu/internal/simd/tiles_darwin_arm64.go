package simd

import (
	"sync"
	"syscall"
)

// haveTiles reports whether the processors have BFMMLA: an M2 and later ones do.
var haveTiles = sync.OnceValue(func() bool {
	has, err := syscall.SysctlUint32("hw.optional.arm.FEAT_BF16")
	return err == nil && has == 1
})
