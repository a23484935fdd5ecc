//go:build !amd64

package simd

const noByteProducts = "simd: no products of bytes on this architecture"

func haveByteProducts() bool { return false }

func digitsOfVector(bool, int, *float32, int, int, *float32, *byte) bool { panic(noByteProducts) }

func digitDotsVector(bool, int, int, *byte, int, int, *float32, *byte, *float32) {
	panic(noByteProducts)
}
