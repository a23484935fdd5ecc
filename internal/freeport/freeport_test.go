package freeport

import (
	"net"
	"testing"
)

// Ports can be listened at.
func TestOnLoopback(t *testing.T) {
	seen := map[string]bool{}
	for range 50 {
		address, err := OnLoopback()
		if err != nil {
			t.Fatal(err)
		}
		seen[address] = true
	}
	for address := range seen {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
	}
}
