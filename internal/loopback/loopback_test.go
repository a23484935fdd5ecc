package loopback_test

import (
	"testing"

	"github.com/stheno-ml/stheno/internal/loopback"
)

func TestIsHost(t *testing.T) {
	for _, field := range []string{"localhost", "LOCALHOST:80", "127.0.0.1", "127.8.9.1:1", "[::1]:7", "::1", "[::1]"} {
		if !loopback.IsHost(field) {
			t.Errorf("%q is not this machine", field)
		}
	}
	for _, field := range []string{
		"", ":80", "evil.example", "localhost.evil.example:80", "127.0.0.1.evil.example", "0.0.0.0", "10.0.0.1", "[::]:80", "2130706433", "127.1", "localhost:80:80",
		"evil.example@localhost", "localhost\x00",
	} {
		if loopback.IsHost(field) {
			t.Errorf("%q is this machine", field)
		}
	}
}
