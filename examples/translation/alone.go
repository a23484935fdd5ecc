package main

import "github.com/stheno-ml/stheno/examples/internal/cli"

func init() {
	cli.Alone("translation trains an encoder and a decoder for some seconds on a toy language of other words in backward order.")
}
