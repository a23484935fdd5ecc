package cuda

import (
	"slices"
	"testing"
)

// All who listen are told what is compiled, until they stop.
func TestOnCompile(t *testing.T) {
	var first, second []string
	stopFirst := OnCompile(func(line string) { first = append(first, line) })
	compileListeners.tell("a")
	stopSecond := OnCompile(func(line string) { second = append(second, line) })
	compileListeners.tell("b")
	stopFirst()
	compileListeners.tell("c")
	stopSecond()
	compileListeners.tell("d")
	if !slices.Equal(first, []string{"a", "b"}) || !slices.Equal(second, []string{"b", "c"}) {
		t.Errorf("the first was told %q and the second %q", first, second)
	}
}
