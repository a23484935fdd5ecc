// Package memory knows how much memory the machine has, so that a file that claims a terabyte is an
// error before it is the end of the program, and has the system give out at once what is about to
// be filled.
package memory

import "sync"

// Total is the machine's memory in bytes, or what this process may have of it where its control
// groups limit that, as those of containers do; known is false where the system does not tell. It
// asks the system once.
func Total() (bytes uint64, known bool) { return once() }

var once = sync.OnceValues(total)

// Populate has the system give out the memory of data, all of which is about to be written, at once
// to all processors and in large pages where it has them: each page that is given out as it is
// written costs about as much as writing it. The contents stay.
func Populate(data []byte) { populate(data) }
