// Package loopback tells this machine from others by what a request says. A page from elsewhere can
// have a browser ask a server of this machine, once the page's own name leads here. Such a request
// has that name in its Host field.
package loopback

import (
	"net"
	"strings"
)

// IsHost reports whether a Host field, with or without a port, is this machine by itself and not by
// what a name server says.
func IsHost(field string) bool {
	host, _, err := net.SplitHostPort(field)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(field, "["), "]")
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
