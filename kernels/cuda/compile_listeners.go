package cuda

import "sync"

// OnCompile has a function called with a line for people when a kernel of a user's score or mask,
// or of dropout or slopes that ranks share, is compiled, which takes seconds, and when that is
// done, until stop is called. It is called on the goroutine that needs the kernel. Kernels that are
// found on disk are not told of.
func OnCompile(tell func(line string)) (stop func()) {
	compileListeners.Lock()
	defer compileListeners.Unlock()
	if compileListeners.told == nil {
		compileListeners.told = map[int]func(string){}
	}
	n := compileListeners.next
	compileListeners.told[n] = tell
	compileListeners.next++
	return func() {
		compileListeners.Lock()
		defer compileListeners.Unlock()
		delete(compileListeners.told, n)
	}
}

// compileListeners are those who are told of what is compiled.
var compileListeners listeners

type listeners struct {
	sync.Mutex
	told map[int]func(line string)
	next int
}

func (l *listeners) tell(line string) {
	l.Lock()
	defer l.Unlock()
	for _, tell := range l.told {
		tell(line)
	}
}
