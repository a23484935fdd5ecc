package distributed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/internal/freeport"
	"github.com/stheno-ml/stheno/internal/guard"
)

// LaunchConfig says what Launch starts. The zero value starts the running program again, with its
// arguments.
type LaunchConfig struct {
	Command []string  // program and arguments; nil for this program's
	Env     []string  // beside os.Environ and the variables of the ranks
	Stdout  io.Writer // nil means os.Stdout
	Stderr  io.Writer // nil means os.Stderr
	// Grace is how long a rank may take to end when it is asked to; 0 means 10 s. Where one has
	// failed, the others have a fifth of it to say why they end before they are asked to.
	Grace time.Duration
	// Lost says what becomes of the others when a signal or a panic ends a rank: by LostReplaced it
	// is started again, and by LostMissed the others go on, unless it is rank 0. The ranks need the
	// same in their Config. A rank that exits with a status other than a panic's has said why it
	// ends, and is not started again.
	Lost Lost
	// Restarts is how many times in all ranks are started again; 0 means 100.
	Restarts int
}

// Launch starts n ranks on this machine and waits for them. Rank 0 has the terminal; what the
// others write is marked with their rank, line by line. They get a secret of their own, unless
// STHENO_GROUP_SECRET is set. Signals that ask a program to end are passed on, a cancelled context
// asks likewise, and when one rank fails the others are asked to end, and then killed. The error
// says how each rank failed.
func Launch(ctx context.Context, n int, c LaunchConfig) error {
	if n < 1 || n > maxSize {
		return fmt.Errorf("distributed: Launch: n is %d, it needs to be from 1 to %d", n, maxSize)
	}
	if c.Stdout == nil {
		c.Stdout = os.Stdout
	}
	if c.Stderr == nil {
		c.Stderr = os.Stderr
	}
	if c.Grace == 0 {
		c.Grace = 10 * time.Second
	}
	if c.Restarts == 0 {
		c.Restarts = defaultRestarts
	}
	if err := c.Lost.Validate(); err != nil {
		return fmt.Errorf("distributed: Launch: Lost %w", err)
	}
	if c.Command == nil {
		program, err := os.Executable()
		if err != nil {
			return fmt.Errorf("distributed: Launch: %w", err)
		}
		c.Command = append([]string{program}, os.Args[1:]...)
	}
	address, err := freeport.OnLoopback()
	if err != nil {
		return fmt.Errorf("distributed: Launch: %w", err)
	}
	all := &launched{config: c, address: address, commands: make([]*exec.Cmd, n), ended: make(chan int, n), errs: make([]error, n), live: make([]bool, n), again: make([]bool, n)}
	if os.Getenv(secretVariable) == "" {
		all.secret = []string{secretVariable + "=" + newNonce()}
	}
	for rank := range n {
		if err := all.start(rank); err != nil {
			all.end(0)
			return fmt.Errorf("distributed: Launch: rank %d: %w", rank, err)
		}
	}
	return all.wait(ctx)
}

const defaultRestarts = 100

// launched are processes that run.
type launched struct {
	config   LaunchConfig
	address  string
	secret   []string // the variable, unless this process has one
	commands []*exec.Cmd
	outputs  sync.Mutex // held while a line is written
	ended    chan int   // the ranks that ended
	errs     []error    // by rank
	live     []bool     // by rank: it runs
	again    []bool     // by rank: it was started again
	running  int
	through  int  // how many ended well
	over     bool // the ranks were asked to end
}

func (a *launched) start(rank int) error {
	host, port, err := net.SplitHostPort(a.address)
	if err != nil {
		return err
	}
	c := exec.Command(a.config.Command[0], a.config.Command[1:]...)
	c.Env = append(append(os.Environ(), a.secret...), a.config.Env...)
	c.Env = append(c.Env, "RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(len(a.commands)), "LOCAL_RANK="+strconv.Itoa(rank),
		"MASTER_ADDR="+host, "MASTER_PORT="+port)
	var marked []*marker
	if rank == 0 {
		c.Stdout, c.Stderr = a.config.Stdout, a.config.Stderr
	} else {
		mark := fmt.Sprintf("[rank %d] ", rank)
		out, err := &marker{to: a.config.Stdout, mark: mark, lock: &a.outputs}, &marker{to: a.config.Stderr, mark: mark, lock: &a.outputs}
		c.Stdout, c.Stderr, marked = out, err, []*marker{out, err}
	}
	c.WaitDelay = a.config.Grace
	apart(c)
	if err := c.Start(); err != nil {
		return err
	}
	a.commands[rank] = c
	a.running++
	a.errs[rank], a.live[rank] = nil, true
	go func() {
		a.errs[rank] = guard.Call("its output", func() error { // which goes to writers of the caller's
			err := c.Wait()
			for _, m := range marked {
				m.flush()
			}
			return err
		})
		a.ended <- rank
	}()
	return nil
}

// missed deals with a rank that failed, and reports whether the others go on.
func (a *launched) missed(rank int) bool {
	var exit *exec.ExitError
	const panicked = 2 // Go's exit status
	lost := errors.As(a.errs[rank], &exit) && (exit.ExitCode() == -1 || exit.ExitCode() == panicked)
	switch {
	case a.over:
		return false
	case a.config.Lost == LostMissed && rank == 0:
		a.errs[rank] = fmt.Errorf("%w: %s", a.errs[rank], notWithoutRank0)
		return false
	case a.config.Lost == LostMissed:
		fmt.Fprintf(a.config.Stderr, "rank %d ended (%v), the others go on\n", rank, a.errs[rank])
		a.errs[rank] = nil
		return true
	case a.config.Lost != LostReplaced || !lost || a.config.Restarts == 0:
		return false
	}
	a.config.Restarts--
	if a.through > 0 { // what the others needed of it they have
		a.errs[rank] = nil
		return true
	}
	fmt.Fprintf(a.config.Stderr, "rank %d ended (%v) and is started again\n", rank, a.errs[rank])
	a.again[rank] = true
	if err := a.start(rank); err != nil {
		a.errs[rank] = err
		return false
	}
	return true
}

// endLate ends those that were started again and meet nobody, since all others are through.
func (a *launched) endLate() {
	var late []int
	for rank, again := range a.again {
		if again && a.live[rank] {
			late = append(late, rank)
		}
	}
	if a.through == 0 || a.running == 0 || a.running > len(late) {
		return
	}
	a.end(a.config.Grace)
	for _, rank := range late {
		a.errs[rank] = nil
	}
}

func (a *launched) wait(ctx context.Context) error {
	signals := make(chan os.Signal, 4)
	for _, s := range endingSignals {
		if !signal.Ignored(s) { // as nohup ignores a terminal's end
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	cancelled := ctx.Done()
	var cause error
	for a.running > 0 {
		select {
		case s := <-signals:
			a.over = true
			a.signal(s)
		case <-cancelled:
			cancelled = nil
			cause = context.Cause(ctx)
			a.end(0)
		case rank := <-a.ended:
			a.running--
			a.live[rank] = false
			switch {
			case a.errs[rank] == nil:
				a.through++
			case !a.missed(rank):
				a.end(a.config.Grace / 5)
			}
			a.endLate()
		}
	}
	if cause != nil {
		return cause
	}
	var failed []error
	for rank, err := range a.errs {
		if err != nil {
			failed = append(failed, fmt.Errorf("rank %d: %w", rank, err))
		}
	}
	return errors.Join(failed...)
}

// end waits for the ranks that still run, asks those to end that have not after some time, and
// kills those that do not listen. Ranks of a group that lost a member end by themselves, with an
// error that says more than a signal.
func (a *launched) end(askAfter time.Duration) {
	ask, kill := time.After(askAfter), time.After(askAfter+a.config.Grace)
	for a.running > 0 {
		select {
		case rank := <-a.ended:
			a.running--
			a.live[rank] = false
		case <-ask:
			a.signal(askToEnd)
		case <-kill:
			a.signal(os.Kill)
		}
	}
}

func (a *launched) signal(s os.Signal) {
	for _, c := range a.commands {
		if c != nil {
			c.Process.Signal(s)
		}
	}
}

// marker writes lines behind a mark, whole ones.
type marker struct {
	to   io.Writer
	mark string
	lock *sync.Mutex
	line []byte
}

func (m *marker) Write(p []byte) (int, error) {
	m.line = append(m.line, p...)
	for {
		line, rest, whole := strings.Cut(string(m.line), "\n")
		if !whole {
			return len(p), nil
		}
		if err := m.writeLine(line); err != nil {
			return 0, err
		}
		m.line = append(m.line[:0], rest...)
	}
}

func (m *marker) writeLine(line string) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	w := bufio.NewWriter(m.to)
	_, err := fmt.Fprintf(w, "%s%s\n", m.mark, line)
	return errors.Join(err, w.Flush())
}

func (m *marker) flush() {
	if len(m.line) > 0 {
		m.writeLine(string(m.line))
		m.line = nil
	}
}
