package main

import "github.com/stheno-ml/stheno/examples/internal/cli"

func init() {
	cli.Alone("vit trains a vision transformer for some seconds to tell apart four shapes in noisy images.")
}
