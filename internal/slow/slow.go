// Package slow lets a test say where it takes too long to be run, beside testing.Short.
package slow

import (
	"os"
	"testing"
)

// Emulated skips a test that takes more than a few seconds on an emulated processor. The emulator
// is not seen from inside: who starts one sets STHENO_TEST_EMULATED.
func Emulated(t testing.TB) {
	if os.Getenv("STHENO_TEST_EMULATED") != "" {
		t.Skip("takes too long on an emulated processor")
	}
}

// Forks skips a test that starts a program where the processor is emulated: a fork of a program
// with several threads, as all of Go's have, may hang there for ever.
func Forks(t testing.TB) {
	if os.Getenv("STHENO_TEST_EMULATED") != "" {
		t.Skip("starts a program, which may hang on an emulated processor")
	}
}

// Racing reports whether tests run in short mode under the race detector: a test then leaves out
// cases that are long there, and start no goroutine that others do not start.
func Racing() bool { return race && testing.Short() }

// Race skips a test in short mode under the race detector. Such a test is long there, and starts no
// goroutine that others do not start.
func Race(t testing.TB) {
	if Racing() {
		t.Skip("shows the race detector nothing that shorter tests do not")
	}
}
