//go:build unix

package main

import "golang.org/x/sys/unix"

// isRead reports whether somebody still reads what the program writes to its terminal or pipes.
func isRead() bool {
	outputs := []unix.PollFd{{Fd: 1}, {Fd: 2}}
	for {
		_, err := unix.Poll(outputs, 0)
		if err == unix.EINTR {
			continue
		}
		return err == nil && (outputs[0].Revents|outputs[1].Revents)&(unix.POLLERR|unix.POLLHUP) == 0
	}
}
