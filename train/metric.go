package train

import (
	"errors"
	"fmt"
	"math"
	"regexp"

	"github.com/stheno-ml/stheno/kernels"
	"github.com/stheno-ml/stheno/nn"
	"github.com/stheno-ml/stheno/ops"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Metric is a number that is shown, logged and plotted beside the loss, such as [Accuracy],
// [Perplexity] or one of one's own. Its value is the mean over all batches of an evaluation. A
// [Scalar] is also read in every step, for that costs nothing.
type Metric struct {
	Name string
	// Nodes are what it is made of, of the model's graph.
	Nodes gorgonia.Nodes
	// Value makes a number of the nodes' values after the run of a batch: the sum over what counts
	// in it, and how much that is. The values are on the host and good until the next run. Nil
	// means that there is one node, whose value is the number.
	Value func(values []*tensor.Dense) (sum, count float64, err error)
	// Final makes what is shown of the mean, such as its exponential; nil means the mean itself.
	Final func(mean float64) float64
}

// Scalar is the mean of a tensor that is a scalar, such as one of the terms of which a loss is the
// sum.
func Scalar(name string, x nn.Tensor) Metric {
	return Metric{Name: name, Nodes: gorgonia.Nodes{x.Node()}}
}

// Perplexity is e to the mean cross-entropy that a loss is.
func Perplexity(loss nn.Tensor) Metric {
	return Metric{Name: "perplexity", Nodes: gorgonia.Nodes{loss.Node()}, Final: math.Exp}
}

// Accuracy is how often the largest of a row of logits, (..., classes), is that of the row's
// target, (...) of integers. Rows with a negative target do not count.
func Accuracy(logits, targets nn.Tensor) Metric {
	return Metric{Name: "accuracy", Nodes: gorgonia.Nodes{logits.Node(), targets.Node()}, Value: countRight}
}

func countRight(values []*tensor.Dense) (right, count float64, err error) {
	logits, err := ops.TensorOf(values[0])
	if err != nil {
		return 0, 0, fmt.Errorf("the value of logits %w", err)
	}
	targets, err := ops.TensorOf(values[1])
	if err != nil {
		return 0, 0, fmt.Errorf("the value of targets %w", err)
	}
	if rows := targets.Elements(); len(logits.Shape) == 0 || logits.Elements() != rows*logits.Shape[len(logits.Shape)-1] {
		return 0, 0, fmt.Errorf("logits has shape %v and targets has %v, it needs a row of logits for each target", logits.Shape, targets.Shape)
	}
	at := func(i int) float64 { return kernels.HostElement(logits, i) }
	if data, ok := values[0].Data().([]float32); ok {
		at = func(i int) float64 { return float64(data[i]) }
	}
	classes := logits.Shape[len(logits.Shape)-1]
	for row := range targets.Elements() {
		target := int(kernels.HostElement(targets, row))
		if target < 0 {
			continue
		}
		best := 0
		for class := range classes {
			if at(row*classes+class) > at(row*classes+best) {
				best = class
			}
		}
		if count++; best == target {
			right++
		}
	}
	return right, count, nil
}

// metricName is what columns, tags and the legends of plots can take.
var metricName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9 _./%@-]*$`)

// check returns what is wrong with a metric of a graph, in words that go on from "metric NAME".
func (m Metric) check(g *gorgonia.ExprGraph) error {
	switch {
	case !metricName.MatchString(m.Name):
		return errors.New("needs a name of letters, digits, spaces and any of _ . / % @ -")
	case len(m.Nodes) == 0:
		return errors.New("has no nodes, it needs at least one")
	case m.Value == nil && len(m.Nodes) > 1:
		return fmt.Errorf("has %d nodes and no function of their values, it needs one", len(m.Nodes))
	}
	for i, n := range m.Nodes {
		switch {
		case n == nil:
			return fmt.Errorf("has node %d nil, it needs to be a node", i)
		case n.Graph() != g:
			return fmt.Errorf("has node %d of another graph, it needs to be of the one that the model was called with", i)
		case m.Value == nil && !n.IsScalar():
			return fmt.Errorf("is a node of shape %v, without a function of its value it needs to be a scalar", []int(n.Shape()))
		}
	}
	return nil
}

// mean joins what a metric is in several batches.
type mean struct{ sum, count float64 }

func (m *mean) add(sum, count float64) { m.sum, m.count = m.sum+sum, m.count+count }

// of is what is shown of a metric.
func (m mean) of(metric Metric) float64 {
	value := m.sum / m.count // NaN where nothing counted
	if metric.Final != nil {
		value = metric.Final(value)
	}
	return value
}
