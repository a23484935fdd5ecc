package simd

import (
	"sync"
	"syscall"

	"golang.org/x/sys/cpu"
)

// haveTiles reports whether the processor has AMX, and the kernel lets the process use it, which it must be asked once: from then on
// it keeps tiles with the other registers of a thread, in signals' frames too.
var haveTiles = sync.OnceValue(func() bool {
	const archPrctl, requestPermission, tileData = 158, 0x1023, 18
	if !cpu.X86.HasAMXTile || !cpu.X86.HasAMXBF16 {
		return false
	}
	_, _, errno := syscall.RawSyscall(archPrctl, requestPermission, tileData, 0)
	return errno == 0
})
