package simd

import (
	"sync"

	"golang.org/x/sys/unix"
)

// haveTiles reports whether the processors have BFMMLA, of which the kernel tells every process
// when it starts.
var haveTiles = sync.OnceValue(func() bool {
	const hardware2, bf16 = 26, 1 << 14 // AT_HWCAP2, HWCAP2_BF16
	vector, err := unix.Auxv()
	if err != nil {
		return false
	}
	for _, entry := range vector {
		if entry[0] == hardware2 {
			return entry[1]&bf16 != 0
		}
	}
	return false
})
