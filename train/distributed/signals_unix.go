//go:build unix

package distributed

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// endingSignals are those that ask a program to end.
var endingSignals = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP}

var askToEnd os.Signal = unix.SIGTERM

// apart keeps a terminal's signals from a process: Launch passes them on, and twice would mean
// something else.
func apart(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
