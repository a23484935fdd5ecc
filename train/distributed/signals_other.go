//go:build !unix

package distributed

import (
	"os"
	"os/exec"
)

// endingSignals are those that ask a program to end.
var endingSignals = []os.Signal{os.Interrupt}

// askToEnd kills where there is no signal to ask with.
var askToEnd os.Signal = os.Kill

func apart(*exec.Cmd) {}
