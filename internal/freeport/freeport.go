// Package freeport finds a port for a process that is yet to start.
package freeport

import (
	"io"
	"net"
)

// OnLoopback returns the address of a port on the loopback at which nobody listens. For about a
// minute the system gives it to nobody who asks for any port, such as those who dial: a connection
// to it has just ended, and Unix systems keep such ports for who asks for them by number.
func OnLoopback() (address string, err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	address = listener.Addr().String()
	caller, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer caller.Close()
	called, err := listener.Accept()
	if err != nil {
		return "", err
	}
	// The end that closes first is the one that the system remembers.
	if err := called.Close(); err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, caller) // until it has heard so
	return address, err
}
