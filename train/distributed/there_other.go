//go:build !unix

package distributed

import "net"

// isThere reports whether the other end of a connection, which has nothing to say now, still is.
func isThere(conn net.Conn) bool { return answersLate(conn) }
