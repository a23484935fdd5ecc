package main

import "github.com/stheno-ml/stheno/examples/internal/cli"

func init() {
	cli.Alone("attention computes causal attention and its gradient on a CPU, and prints their shapes.")
}
