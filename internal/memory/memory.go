// Package memory knows how much memory the machine has, so that a file that claims a terabyte is an error before it is the
// end of the program.
package memory

// Total is the machine's memory in bytes; known is false where the system does not tell.
func Total() (bytes uint64, known bool) { return total() }
