// Package memory knows how much memory the machine has, so that a file that claims a terabyte is an error before it is the
// end of the program, and asks for large pages where much of it is filled.
package memory

// Total is the machine's memory in bytes; known is false where the system does not tell.
func Total() (bytes uint64, known bool) { return total() }

// WillFill says that all of data is about to be written, so that the system may give it out by megabytes in place of kilobytes,
// each of which costs it about as much as a page takes to be written. The contents stay.
func WillFill(data []float32) { willFill(data) }
