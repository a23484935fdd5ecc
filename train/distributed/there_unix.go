//go:build unix

package distributed

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// isThere reports whether the other end of a connection, which has nothing to say now, still is.
func isThere(conn net.Conn) bool {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return answersLate(conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	there := false
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK)
		there = n > 0 || err == unix.EAGAIN || err == unix.EINTR
		return true
	})
	return there && err == nil
}
