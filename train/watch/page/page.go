// Package page shows a training in a browser while it runs. Its hook is one line of a
// [train.LoopConfig]:
//
//	Hooks: []train.Hook{watch.Progress(os.Stderr), page.Serve(page.Options{Announce: say})},
//
// The page has the losses, the learning rate, the speed, what the model writes, and the attention
// of a layer and head over a text that is typed there. It is one file without anything from
// elsewhere. It shows the whole run, however late it is opened.
//
// The server is of this machine alone: it listens on a loopback address and refuses requests for
// any other host, as a page from elsewhere could make a browser send them. It only answers GET and
// changes nothing. It ends with the run. A page that is open then keeps what it shows.
package page

import (
	"context"
	_ "embed"
	"fmt"
	"net"
	"time"

	"github.com/stheno-ml/stheno/internal/loopback"
	"github.com/stheno-ml/stheno/train"
)

// Options say where a page is and what it shows besides the numbers.
type Options struct {
	// Address is where the server listens; "" means [DefaultAddress]. Its host is a loopback one,
	// and port 0 is any that is free.
	Address Address
	// Title is what the page calls the run.
	Title string
	// Announce, if it is not nil, is told the page's address before the first step.
	Announce func(url string)
	// Sample, if it is not nil, gives what the model writes after an evaluation.
	Sample func(train.Evaluation) (string, error)
	// Attention, if it is not nil, is asked for what is typed into the page; [Attention] makes it
	// of a language model. The text is cut by it to what the model takes.
	Attention func(text string, layer int) (Weights, error)
}

// Address is a host and a port. As a flag it may stand alone, for [DefaultAddress].
type Address string

// DefaultAddress is where a page is that says nothing else.
const DefaultAddress Address = "localhost:7887"

func (a *Address) String() string { return string(*a) }

// Set takes what a flag says.
func (a *Address) Set(text string) error {
	switch text {
	case "true": // of a flag that stands alone
		*a = DefaultAddress
	case "false":
		*a = ""
	default:
		*a = Address(text)
		return a.check()
	}
	return nil
}

// IsBoolFlag says that the flag may stand alone.
func (*Address) IsBoolFlag() bool { return true }

// check refuses what is of another machine.
func (a Address) check() error {
	_, port, err := net.SplitHostPort(string(a))
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil {
		return fmt.Errorf("the address %q needs to be a host and a port, such as %s: %w", a, DefaultAddress, err)
	}
	if !loopback.IsHost(string(a)) {
		return fmt.Errorf("the address is %q, its host needs to be of this machine alone: localhost, 127.0.0.1 or ::1", a)
	}
	return nil
}

// Weights are the attention of a layer over some tokens.
type Weights struct {
	Tokens []string `json:"tokens"`
	Layer  int      `json:"layer"`
	Layers int      `json:"layers"` // that the model has
	// Heads has by head and token how much each token, itself and those before it, weighs.
	Heads [][][]float32 `json:"heads"`
}

//go:embed page.html
var html []byte

// Serve serves a page while a run goes on. An address that cannot be listened on ends the run with
// an error before its first step.
//
// What is typed into the page is computed between two batches, on the goroutine of the training,
// and takes its time.
func Serve(o Options) train.Hook {
	return newPage(o).hook()
}

// page is a page that is served during a run.
type page struct {
	o      Options
	record *record
	asked  chan question
	server *server // nil when no run goes on
	done   context.CancelFunc
}

func newPage(o Options) *page {
	return &page{o: o, asked: make(chan question, mostAsked), record: newRecord()}
}

func (p *page) hook() train.Hook {
	return train.Hook{
		OnStart: func(s train.Start) error {
			if err := p.start(s); err != nil {
				return fmt.Errorf("page.Serve: %w", err)
			}
			return nil
		},
		OnStep: func(s train.Step) error {
			p.record.step(s)
			p.answer()
			return nil
		},
		OnBatch: func(train.Batch) error {
			p.answer()
			return nil
		},
		OnBack: func(b train.Back) error {
			p.record.back(b)
			return nil
		},
		OnEval:   p.evaluation,
		OnNotice: func(n train.Notice) error { p.record.notice(n.Error()); return nil },
		OnCancel: func(train.Cancel) { p.record.notice("The run is asked to stop.") },
		OnEnd:    p.end,
	}
}

// question is a text whose attention is asked for.
type question struct {
	text   string
	layer  int
	answer chan<- answer // has room
}

type answer struct {
	weights Weights
	err     error
}

// mostAsked is how many questions wait; there is one person at the page.
const mostAsked = 4

func (p *page) start(s train.Start) error {
	address := p.o.Address
	if address == "" {
		address = DefaultAddress
	}
	if err := address.check(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", string(address))
	if err != nil {
		return fmt.Errorf("%w (port 0 takes any that is free)", err)
	}
	p.record.start(p.o.Title, s, p.o.Attention != nil)
	var running context.Context
	running, p.done = context.WithCancel(context.Background())
	p.server = serve(listener, p.routes(running))
	if p.o.Announce != nil {
		host, _, _ := net.SplitHostPort(string(address)) // which it has been checked to be
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		p.o.Announce("http://" + net.JoinHostPort(host, port))
	}
	return nil
}

func (p *page) evaluation(e train.Evaluation) error {
	p.record.evaluation(e)
	if p.o.Sample != nil {
		text, err := p.o.Sample(e)
		if err != nil {
			text = err.Error()
		}
		if text != "" {
			p.record.sample(e.Done, text)
		}
	}
	p.answer()
	return nil
}

// answer answers what was asked since the last time.
func (p *page) answer() {
	for {
		select {
		case q := <-p.asked:
			w, err := p.o.Attention(q.text, q.layer)
			q.answer <- answer{w, err}
		default:
			return
		}
	}
}

// farewell is how long open pages have to read the end.
const farewell = 2 * time.Second

// end is also called when start has failed or was not called.
func (p *page) end(e train.End) error {
	if p.server == nil {
		return nil
	}
	p.record.end(e)
	p.done()
	p.server.close(farewell)
	p.server = nil
	return nil
}
