// Package train trains models: optimisers that change the parameters of a Gorgonia graph by their gradients, and
// schedules for their learning rate.
//
// [NewAdamW], [NewSGD] and [NewLion] make an [Optimizer] over parameter nodes. The machine that computes the gradients
// is made with [gorgonia.BindDualValues] of the same nodes (a lispMachine needs no option); after each of its runs,
// [Optimizer.Step] changes the parameters in place, on all cores, and sets the gradients to zero, since Gorgonia adds to
// them until someone does:
//
//	opt, err := train.NewAdamW(model.Parameters(), train.AdamWConfig{
//		WeightDecay: 0.1,
//		Options: train.Options{
//			Schedule: train.WarmupCosine{Peak: 1e-3, Min: 1e-4, Warmup: 100, Steps: 2000},
//			Groups:   []train.Group{{Match: train.Vectors, NoDecay: true}},
//			ClipNorm: 1,
//		},
//	})
//	for range 2000 {
//		err = machine.RunAll()
//		machine.Reset()
//		report, err := opt.Step()
//	}
//
// # Gradients that are not finite
//
// A step whose gradients hold a NaN or an infinity would destroy the model. It changes no parameter and no state, and
// its [Report] says so and names the parameter. When too many steps in a row are like that, Step returns an error.
//
// # Numbers
//
// Parameters are float32 or float64. AdamW and SGD follow PyTorch's arithmetic, to rounding. A step gives the same bits
// on any number of cores.
package train
