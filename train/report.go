package train

import (
	"errors"

	"github.com/stheno-ml/stheno/kernels"
)

// Report is what happened in a step.
type Report struct {
	// Step is how many steps have changed the parameters, this one included.
	Step int
	// LearningRate is the step's.
	LearningRate float64
	// GradientNorm is the norm of all gradients together before clipping. In a skipped step it is
	// NaN, infinite, or not below [kernels.LargestNorm].
	GradientNorm float64
	// Clipped tells that the gradients were scaled down.
	Clipped bool
	// Skipped tells that a gradient was not finite, or too large for float32 to hold its square, so
	// that nothing was changed; NonFinite is the parameter's name.
	Skipped   bool
	NonFinite string
}

// PendingReport is the report of a step that may not have been made yet.
type PendingReport struct {
	optimizer     *Stepper
	norm, verdict kernels.Number // nil once they were read
	report        Report
	err           error
}

// Report waits for the step, and for those before it. Its error is the step's: that too many steps
// in a row were skipped, or what went wrong on the device.
func (p *PendingReport) Report() (Report, error) {
	for p.norm != nil {
		p.optimizer.read(p.optimizer.pending[0])
	}
	return p.report, p.err
}

// ask asks for the numbers of which the report of the step is made that was queued last.
func (o *Stepper) ask() (*PendingReport, error) {
	p := &PendingReport{optimizer: o}
	var err error
	if p.norm, err = o.number(kernels.ControlNorm); err != nil {
		return nil, o.wrap(err)
	}
	if p.verdict, err = o.number(kernels.ControlVerdict); err != nil {
		return nil, o.wrap(err)
	}
	o.pending = append(o.pending, p)
	return p, nil
}

// number asks for a number of the control vector.
func (o *Stepper) number(at int) (kernels.Number, error) {
	return o.backend.Read(o.vector.Slice(0, at, at+1))
}

// readReports reads the oldest reports, so many, and returns the first error that one of them has.
func (o *Stepper) readReports(count int) (err error) {
	for ; count > 0; count-- {
		p := o.pending[0]
		o.read(p)
		if err == nil {
			err = p.err
		}
	}
	return err
}

// errAbandoned is the error of a step whose gradients did not come together, since a rank was lost.
var errAbandoned = errors.New("a rank was lost before the step")

// read makes a report of the oldest step that has none.
func (o *Stepper) read(p *PendingReport) {
	o.pending = o.pending[1:]
	norm, err := p.norm.Float64()
	verdict := 0.0
	if err == nil {
		verdict, err = p.verdict.Float64()
	}
	p.norm, p.verdict = nil, nil
	p.report = Report{Step: o.step, LearningRate: o.options.Schedule.LearningRate(o.step)}
	switch {
	case err != nil:
		p.err = o.errorf("%w", err)
	case verdict == kernels.NoRate:
		p.err = o.errorf("the schedule's learning rate of step %d is %v, it needs to be finite and not negative", o.step, p.report.LearningRate)
	case verdict == kernels.StepAbandoned:
		p.err = errAbandoned
	case verdict == kernels.StepMade:
		o.step++
		o.skippedInARow = 0
		p.report.Step, p.report.GradientNorm = o.step, norm
		p.report.Clipped = o.options.ClipNorm > 0 && o.options.ClipNorm/(norm+1e-6) < 1
	default:
		o.skipped++
		o.skippedInARow++
		p.report.GradientNorm, p.report.Skipped, p.report.NonFinite = norm, true, o.parameters[int(verdict)].node.Name()
		if o.skippedInARow >= o.options.MaxSkips {
			p.err = o.errorf("the gradients of %d steps in a row are not finite, the last of them first in %s: try a lower learning rate, clipping by a norm, a longer warm-up or activations in float32",
				o.skippedInARow, p.report.NonFinite)
		}
	}
}

// Skipped is how many steps were skipped because a gradient was not finite, as far as their reports
// were read.
func (o *Stepper) Skipped() int { return o.skipped }
