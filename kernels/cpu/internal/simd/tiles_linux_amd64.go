package simd

import (
	"sync"
	"syscall"

	"golang.org/x/sys/cpu"
)

// haveTiles reports whether the processor has AMX, with the rounding to bfloat16 of vectors that
// comes with it, and the kernel lets the process use it, which it must be asked once: from then on
// it keeps tiles with the other registers of a thread, in signals' frames too.
var haveTiles = sync.OnceValue(func() bool {
	const archPrctl, requestPermission, tileData = 158, 0x1023, 18
	if !cpu.X86.HasAMXTile || !cpu.X86.HasAMXBF16 || !cpu.X86.HasAVX512BF16 {
		return false
	}
	_, _, errno := syscall.RawSyscall(archPrctl, requestPermission, tileData, 0)
	return errno == 0
})
