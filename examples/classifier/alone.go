package main

import "github.com/stheno-ml/stheno/examples/internal/cli"

func init() {
	cli.Alone("classifier trains a BERT for some seconds to tell whether a sentence of drawn words has more of praise or of blame.")
}
