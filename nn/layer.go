package nn

import "gorgonia.org/gorgonia"

// Layer is what most layers are: parameters, and a function of one node.
type Layer interface {
	// Forward adds the layer's ops on x to the graph and gives the node of the result.
	Forward(x *gorgonia.Node) (*gorgonia.Node, error)
	// Parameters lists what there is to train, in a stable order.
	Parameters() gorgonia.Nodes
}

// Maker makes a layer from its config. Configs take one for each kind of layer that they are made of, so that a model may have
// others in their place: [NewLinear] with something added to it, a norm of one's own, a mixture of experts for an MLP. A maker that
// wants the usual layer for some names calls the usual function.
type Maker[Config any] func(g *gorgonia.ExprGraph, c Config) (Layer, error)

// parametersOf lists the parameters of the parts of a layer.
func parametersOf(parts ...Layer) gorgonia.Nodes {
	var all gorgonia.Nodes
	for _, part := range parts {
		if part != nil {
			all = append(all, part.Parameters()...)
		}
	}
	return all
}

// Chain applies layers one after the other.
func Chain(x *gorgonia.Node, layers ...Layer) (*gorgonia.Node, error) {
	for _, l := range layers {
		if l == nil {
			return nil, errUnmade
		}
		var err error
		if x, err = l.Forward(x); err != nil {
			return nil, err
		}
	}
	return x, nil
}

// Must returns v, and panics with an error: for programs that could do no more than print it and end.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// made is what a constructor gives: the layer, or the error and nothing else.
func made[T any](layer *T, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	return layer, nil
}
