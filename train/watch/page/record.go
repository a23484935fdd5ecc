package page

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/train"
)

// record is what pages show. It stops growing with the number of steps: points stand for equal
// numbers of steps, and when there are too many, each takes in its neighbour.
type record struct {
	mu      sync.Mutex
	changed chan struct{} // is closed at a change

	run         string // another for each run, and when what pages have is no longer right
	about       about
	perPoint    int
	points      []point
	evaluations []evaluation
	samples     []sample
	notices     []string
	now         now
	perStep     float64 // seconds of one, lately
	ended       *ending
}

// about is what stays the same during a run.
type about struct {
	Title      string `json:"title"`
	Parameters int    `json:"parameters"`
	Tokens     int    `json:"tokensPerStep"`
	Steps      int    `json:"steps"`
	Attention  bool   `json:"attention"`
}

// point is some steps in a row.
type point struct {
	Done  int     `json:"step"` // the last
	Loss  number  `json:"loss"` // mean
	Least number  `json:"least"`
	Most  number  `json:"most"`
	Rate  float64 `json:"rate"` // of the last
	sum   float64
	count int // steps
}

type evaluation struct {
	Done       int    `json:"step"`
	Train      number `json:"train"`
	Validation number `json:"validation"`
	Best       bool   `json:"best"`
}

type sample struct {
	Done int    `json:"step"`
	Text string `json:"text"`
}

// now is how far the run has come.
type now struct {
	Done    int     `json:"step"`
	Loss    number  `json:"loss"`
	Rate    number  `json:"rate"`
	Norm    number  `json:"norm"`
	Speed   float64 `json:"tokensPerSecond"`
	Elapsed float64 `json:"elapsed"` // seconds
	Left    float64 `json:"left"`    // seconds
}

// ending is how a run ended.
type ending struct {
	Done      int    `json:"step"`
	Cancelled bool   `json:"cancelled"`
	Err       string `json:"error,omitempty"`
}

// number is null in JSON when it is not finite.
type number float64

// MarshalJSON writes the shortest text of the number.
func (n number) MarshalJSON() ([]byte, error) {
	if x := float64(n); !math.IsNaN(x) && !math.IsInf(x, 0) {
		return strconv.AppendFloat(nil, x, 'g', 6, 64), nil
	}
	return []byte("null"), nil
}

const (
	mostPoints  = 2000 // is even
	mostSamples = 200
	mostNotices = 50
)

func newRecord() *record { return &record{changed: make(chan struct{}), perPoint: 1} }

// change makes a change and tells those who wait.
func (r *record) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *record) renew() { r.run = strconv.FormatUint(rand.Uint64(), 36) }

// start begins a run. One that goes on from where the last ended keeps what there is.
func (r *record) start(title string, s train.Start, attention bool) {
	r.change(func() {
		r.about = about{title, s.Parameters, s.TokensPerStep, s.Steps, attention}
		if s.Step == 0 || s.Step != r.now.Done {
			r.points, r.evaluations, r.samples, r.notices, r.perPoint = nil, nil, nil, nil, 1
		}
		r.now, r.ended, r.perStep = now{Done: s.Step, Loss: number(math.NaN())}, nil, 0
		r.renew()
	})
}

func (r *record) step(s train.Step) {
	r.change(func() {
		seconds := s.Duration.Seconds()
		if r.perStep == 0 {
			r.perStep = seconds
		}
		r.perStep += (seconds - r.perStep) / 20
		r.now = now{
			Done: s.Done, Loss: number(s.Loss), Rate: number(s.LearningRate), Norm: number(s.GradientNorm),
			Elapsed: s.Elapsed.Seconds(), Left: float64(s.Steps-s.Done) * r.perStep,
		}
		if r.perStep > 0 {
			r.now.Speed = float64(s.Tokens) / r.perStep
		}
		if math.IsNaN(s.Loss) || math.IsInf(s.Loss, 0) {
			return
		}
		r.add(point{Done: s.Done, Loss: number(s.Loss), Least: number(s.Loss), Most: number(s.Loss), Rate: s.LearningRate, sum: s.Loss, count: 1})
	})
}

func (r *record) add(p point) {
	if n := len(r.points); n > 0 && r.points[n-1].count < r.perPoint {
		r.points[n-1] = r.points[n-1].and(p)
		return
	}
	if len(r.points) == mostPoints {
		for i := range mostPoints / 2 {
			r.points[i] = r.points[2*i].and(r.points[2*i+1])
		}
		r.points = r.points[:mostPoints/2]
		r.perPoint *= 2
		r.renew()
	}
	r.points = append(r.points, p)
}

// and joins a point with the next.
func (p point) and(next point) point {
	next.sum, next.count = p.sum+next.sum, p.count+next.count
	next.Least, next.Most = min(p.Least, next.Least), max(p.Most, next.Most)
	next.Loss = number(next.sum / float64(next.count))
	return next
}

func (r *record) evaluation(e train.Evaluation) {
	r.change(func() {
		r.evaluations = append(r.evaluations, evaluation{e.Done, number(e.Train), number(e.Validation), e.Best})
	})
}

func (r *record) sample(done int, text string) {
	r.change(func() {
		if len(r.samples) == mostSamples {
			r.samples = slices.Delete(r.samples, 1, 2) // the first stays, to compare with
			r.renew()
		}
		r.samples = append(r.samples, sample{done, text})
	})
}

func (r *record) notice(line string) {
	r.change(func() {
		if len(r.notices) < mostNotices {
			r.notices = append(r.notices, line)
		}
	})
}

// back takes out what was recorded of later steps.
func (r *record) back(b train.Back) {
	r.notice(b.String())
	r.change(func() {
		r.points = slices.DeleteFunc(r.points, func(p point) bool { return p.Done > b.Done })
		r.evaluations = slices.DeleteFunc(r.evaluations, func(e evaluation) bool { return e.Done > b.Done })
		r.samples = slices.DeleteFunc(r.samples, func(s sample) bool { return s.Done > b.Done })
		r.renew()
	})
}

func (r *record) end(e train.End) {
	r.change(func() {
		r.ended = &ending{Done: e.Done, Cancelled: e.Cancelled}
		if e.Err != nil {
			r.ended.Err = e.Err.Error()
		}
		r.now.Left, r.now.Elapsed = 0, max(r.now.Elapsed, e.Elapsed.Truncate(time.Millisecond).Seconds())
	})
}

// update is what a page lacks.
type update struct {
	Run         string       `json:"run"` // a page that has another forgets what it has
	About       about        `json:"about"`
	Now         now          `json:"now"`
	From        int          `json:"from"` // where Points go
	Points      []point      `json:"points"`
	Evaluations []evaluation `json:"evaluations"` // behind those that the page has, as are the following
	Samples     []sample     `json:"samples"`
	Notices     []string     `json:"notices"`
	Ended       *ending      `json:"ended,omitempty"`
}

// cursor is what a page has.
type cursor struct {
	run                                   string
	points, evaluations, samples, notices int
}

// since gives what a page lacks, and what it has then; the channel is closed at the next change.
func (r *record) since(c cursor) (update, cursor, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.run != r.run {
		c = cursor{run: r.run}
	}
	from := max(c.points-1, 0) // the last one may stand for more steps by now
	u := update{
		Run: r.run, About: r.about, Now: r.now, From: from, Points: behind(r.points, from),
		Evaluations: behind(r.evaluations, c.evaluations), Samples: behind(r.samples, c.samples),
		Notices: behind(r.notices, c.notices), Ended: r.ended,
	}
	return u, cursor{r.run, len(r.points), len(r.evaluations), len(r.samples), len(r.notices)}, r.changed
}

// behind copies what a page lacks of a list. A list that is empty is not nil, which JSON writes as
// null.
func behind[T any](list []T, has int) []T { return append([]T{}, list[has:]...) }
