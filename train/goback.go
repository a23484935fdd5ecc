package train

import (
	"errors"
	"fmt"
	"math"

	"github.com/stheno-ml/stheno/train/checkpoint"
)

// GoBack has a training go back by itself when its loss spikes, or when gradients are not finite
// several times in a row: to the newest checkpoint whose weights were good, and on from there with
// the data that come after those of the spike. The batches between are left out. All that is in a
// [Notice] and in the logs of package train/watch. A resumed training decides as one that was never
// stopped, and may go back to the checkpoint that the stop has left.
//
// The weights of a checkpoint count as good if the loss of the step after it did not spike. Where
// there is no such checkpoint the training goes on as it is, with a Notice.
type GoBack struct {
	// Spike is how many standard deviations the loss may lie above the mean of the Window losses
	// before it; 0 means 10. A loss that is not finite is a spike too. Where losses are all alike
	// the deviation counts as a thousandth of their mean and 1e-6.
	Spike float64
	// Window is how many steps a loss is compared with, in which no spike is seen at the beginning;
	// 0 means 100.
	Window int
	// Skips is how many steps in a row may be skipped, since their gradients are not finite, before
	// the training goes back; 0 means 5. It needs to be less than MaxSkips of Options by two.
	Skips int
	// Most is how many times the training goes back, after which a spike is an error; 0 means 3.
	Most int
}

// course is where a training that goes back is: part of what checkpoints hold.
type course struct {
	LeftOut  int       `json:"leftOut,omitempty"`  // steps whose batches were left out
	WentBack int       `json:"wentBack,omitempty"` // times
	Losses   []float64 `json:"losses,omitempty"`   // of the last good steps, up to Window
	Bad      int       `json:"bad,omitempty"`      // steps in a row that are not
}

func (b *GoBack) withDefaults() GoBack {
	c := *b
	c.Spike = or(c.Spike, 10)
	for _, z := range []struct {
		to    *int
		value int
	}{{&c.Window, 100}, {&c.Skips, 5}, {&c.Most, 3}} {
		if *z.to == 0 {
			*z.to = z.value
		}
	}
	return c
}

func (b *GoBack) validate(c LoopConfig) error {
	if b == nil {
		return nil
	}
	most := c.Options.MaxSkips
	if most == 0 {
		most = defaultMaxSkips
	}
	d := b.withDefaults()
	switch {
	case !(b.Spike >= 0) || math.IsInf(b.Spike, 0):
		return fmt.Errorf("go back: spike is %v, it needs to be finite and positive, or 0 for 10", b.Spike)
	case b.Window < 0 || b.Window == 1:
		return fmt.Errorf("go back: window is %d, it needs to be at least 2, or 0 for 100", b.Window)
	case b.Skips < 0 || d.Skips > most-2:
		return fmt.Errorf("go back: skips is %d, it needs to be from 1 to %d, two less than max skips", d.Skips, most-2)
	case b.Most < 0:
		return fmt.Errorf("go back: most is %d, it needs to be positive, or 0 for 3", b.Most)
	case c.Place.Leads() && (c.Checkpoints == nil || c.CheckpointEvery == 0):
		return errors.New("go back is set without checkpoints, it needs a folder and checkpoint every")
	}
	return nil
}

// judge takes a step into the course, and says why the training should go back after it, nothing if
// it should not. A checkpoint that a hook's error leaves knows of it.
func (l *Loop) judge(s Step) (why string) {
	if l.c.GoBack == nil {
		return ""
	}
	b := l.c.GoBack.withDefaults()
	why = l.spike(b, s)
	if l.course.Bad++; why == "" && !s.Report.Skipped {
		l.course.Losses, l.course.Bad = append(l.course.Losses[max(0, len(l.course.Losses)+1-b.Window):], s.Loss), 0
	}
	return why
}

// goBackIfDue goes back for a reason, if there is one. On a device the next step is queued then,
// which the caller drops.
func (l *Loop) goBackIfDue(why string) error {
	switch {
	case why == "":
		return nil
	case l.course.WentBack >= l.c.GoBack.withDefaults().Most:
		return fmt.Errorf("%s, after the training has gone back %d times: a smaller learning rate, a warmup or clipped gradients may help", why, l.course.WentBack)
	}
	return l.goBack(why)
}

// spike says why the training should go back after a step, nothing if it should not.
func (l *Loop) spike(b GoBack, s Step) string {
	if s.Report.Skipped {
		if l.stepper.skippedInARow < b.Skips {
			return ""
		}
		return fmt.Sprintf("the gradients of %d steps in a row are not finite, up to step %d", l.stepper.skippedInARow, s.Done)
	}
	if math.IsNaN(s.Loss) || math.IsInf(s.Loss, 0) {
		return fmt.Sprintf("the loss of step %d is %v", s.Done, s.Loss)
	}
	if len(l.course.Losses) < b.Window {
		return ""
	}
	mean, squares := 0.0, 0.0
	for _, x := range l.course.Losses {
		mean += x / float64(len(l.course.Losses))
	}
	for _, x := range l.course.Losses {
		squares += (x - mean) * (x - mean)
	}
	deviation := max(math.Sqrt(squares/float64(len(l.course.Losses)-1)), math.Abs(mean)/1000+1e-6)
	if s.Loss <= mean+b.Spike*deviation {
		return ""
	}
	return fmt.Sprintf("the loss of step %d is %.4g, that of the %d steps before it was %.4g ± %.2g", s.Done, s.Loss, len(l.course.Losses), mean, deviation)
}

// goBack goes on from the newest good checkpoint, with the data that come after the last step.
func (l *Loop) goBack(why string) error {
	if err := l.saver.finish(); err != nil {
		return err
	}
	// The loss of a step judges the weights before it: those that the last good step has left may
	// be what is wrong.
	from, leftOut, wentBack := l.done, l.course.LeftOut, l.course.WentBack
	lastGood := from - l.course.Bad
	_, err := l.resumeUpTo(lastGood - 1)
	if errors.Is(err, checkpoint.ErrNone) {
		return l.audience.noticeOnce("the loss spikes or gradients are not finite, and there is no checkpoint from before that: the training goes on")
	}
	if err != nil {
		return err
	}
	l.course.LeftOut, l.course.WentBack = leftOut+from-l.done, wentBack+1
	if l.c.Checkpoints != nil {
		if err := l.c.Checkpoints.RemoveAfter(l.done); err != nil {
			return err
		}
	}
	return l.audience.back(Back{From: from, Done: l.done, LeftOut: from - l.done, Why: why})
}
