package simd

import (
	"sync"

	"golang.org/x/sys/windows"
)

// haveTiles reports whether the processors have BFMMLA. Systems that do not know the question say
// no.
var haveTiles = sync.OnceValue(func() bool {
	const bf16 = 68 // PF_ARM_V86_BF16_INSTRUCTIONS_AVAILABLE
	return windows.IsProcessorFeaturePresent(bf16)
})
