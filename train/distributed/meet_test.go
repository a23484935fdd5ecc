package distributed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stheno-ml/stheno/kernels"
)

// joined is a group that is asked for beside the test, and its errors.
func joined(t *testing.T, list []Config) <-chan []error {
	done := make(chan []error, 1)
	go func() {
		done <- together(t, list, func(g *Group) error { return g.Sum(kernels.Of([]float32{1}, 1)) })
	}()
	return done
}

// dial calls the rank 0 of a config.
func dial(t *testing.T, c Config) net.Conn {
	t.Helper()
	conn, err := dialUntil(t.Context(), c.network(), c.Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// Strangers on a group's port neither end it nor come to know of it: those that say wrong sizes and
// take a rank's place without the secret, those that send the other end's proof back, and those
// that say a lot and read nothing.
func TestStrangersWithoutTheSecret(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan) {
		list := l.configs(2, time.Minute)
		for n := range list {
			list[n].Secret = "a secret"
		}
		first := joined(t, list[:1])
		long := strings.Repeat("\x1b[2J\x00", 1000)
		for n, h := range []hello{
			{Protocol: protocol, Rank: 1, Size: 2}, {Protocol: protocol, Rank: 1, Size: 7}, {Protocol: protocol, Rank: 5, Size: 2, Host: long}, {Protocol: protocols + long},
		} {
			if err := introduce(dial(t, list[0]), []byte("another"), h); err == nil {
				t.Errorf("stranger %d is known", n)
			}
			// One that answers with what rank 0 has proved.
			conn := dial(t, list[0])
			said, _ := json.Marshal(h)
			var c challenge
			if err := send(conn, said); err == nil && hear(conn, &c) == nil && c.Proof != "" {
				tell(conn, reply{c.Proof})
				if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("stranger %d gets %v for the proof of the other end", n, err)
				}
			}
		}
		other := list[1]
		other.Secret = "another"
		if _, err := Join(t.Context(), other); err == nil || !strings.Contains(err.Error(), errOtherSecret.Error()) {
			t.Errorf("a rank with another secret: %v", err)
		}
		none(t, append(<-joined(t, list[1:]), <-first...))
	})
}

// A caller that says a long name of control characters and reads nothing does not hold rank 0 up,
// and its name is shown clipped.
func TestCallersThatDoNotRead(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan) {
		list := l.configs(2, time.Hour)
		l.room = 100 // less than what it is told in the end
		first := joined(t, list[:1])
		h := hello{Protocol: protocol, Rank: 1, Size: 9, Host: strings.Repeat("\x1b[2J\x00", 400)}
		conn, began := dial(t, list[0]), time.Now()
		if err := introduce(conn, nil, h); err != nil {
			t.Fatal(err)
		}
		err := errors.Join(<-first...)
		if err == nil || !strings.Contains(err.Error(), "was started as one of 9 ranks") || strings.ContainsAny(err.Error(), "\x1b\x00") || len(err.Error()) > 500 {
			t.Errorf("the error is %.1000q", err)
		}
		if took := time.Since(began); took != patience { // by the bubble's clock
			t.Errorf("rank 0 took %v, want %v", took, patience)
		}
	})
}

// A rank that dies while others are awaited may be started again.
func TestRanksThatComeAgain(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan) {
		list := l.configs(3, time.Minute)
		first := joined(t, list[:1])
		for range 3 {
			conn := dial(t, list[0])
			if err := introduce(conn, nil, hello{Protocol: protocol, Rank: 1, Size: 3}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			conn.Close()
			synctest.Wait() // until rank 0 knows
		}
		last := joined(t, list[2:])
		synctest.Wait()
		none(t, append(append(<-joined(t, list[1:2]), <-first...), <-last...))
	})
}

// A rank that was started again may come before it is known that it has ended, and dies then, too,
// without ending the meeting.
func TestRanksThatComeAgainEarly(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan) {
		list := l.configs(3, time.Minute)
		first := joined(t, list[:1])
		var conns []net.Conn
		for range 3 {
			conn := dial(t, list[0])
			if err := introduce(conn, nil, hello{Protocol: protocol, Rank: 1, Size: 3}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			conns = append(conns, conn)
		}
		again := joined(t, list[1:2])
		synctest.Wait()
		for _, conn := range slices.Backward(conns) {
			time.Sleep(time.Second)
			conn.Close()
		}
		synctest.Wait()
		none(t, append(append(<-joined(t, list[2:]), <-first...), <-again...))
	})
}

// A rank of another version is told so.
func TestOtherVersions(t *testing.T) {
	inLAN(t, func(t *testing.T, l *lan) {
		list := l.configs(2, time.Minute)
		first := joined(t, list[:1])
		conn := dial(t, list[0])
		io.WriteString(conn, `{"Protocol":"stheno group 2","Rank":1,"Size":2}`+"\n")
		var a struct{ Protocol, Error string }
		if err := hear(conn, &a); err != nil || a.Protocol != protocol || !strings.Contains(a.Error, `"stheno group 2"`) || !strings.Contains(a.Error, "one version") {
			t.Errorf("it is told %+v, %v", a, err)
		}
		none(t, append(<-joined(t, list[1:]), <-first...))
	})
}

// failing is a listener that cannot accept at first.
type failing struct {
	net.Listener
	left atomic.Int32
}

func (l *failing) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

// Errors of accepting a connection pass.
func TestAcceptFailsForATime(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := &failing{Listener: inner}
	listener.left.Store(4)
	defer listener.Close()
	callers := answerCalls(t.Context(), listener, nil, func(caller) {})
	if err := introduce(dial(t, Config{Address: inner.Addr().String()}), nil, hello{Protocol: protocol, Rank: 3}); err != nil {
		t.Fatal(err)
	}
	if c := <-callers; c.hello.Rank != 3 {
		t.Errorf("%+v", c.hello)
	}
}

// The largest group's members can be told.
func TestTheLargestRoster(t *testing.T) {
	group := roster{Key: newNonce(), Members: make([]member, maxSize), Ranks: make([]int, maxSize)}
	for n := range group.Members {
		group.Ranks[n] = n
		group.Members[n] = member{hello{Rank: n, Host: strings.Repeat("h", 3*maxName), Process: 1 << 22}.name(), fmt.Sprintf("[2001:db8:1234:5678:9abc:def0:1234:%x]:65535", n)}
	}
	text, err := json.Marshal(group)
	if err != nil {
		t.Fatal(err)
	}
	head, _ := json.Marshal(answer{Protocol: protocol, Bytes: len(text)})
	here, there := net.Pipe()
	go send(here, head, text)
	got, err := meeting{Config: Config{Rank: maxSize - 1, Size: maxSize}}.hearRoster(there)
	if err != nil || len(got.Members) != maxSize || got.Members[maxSize-1] != group.Members[maxSize-1] {
		t.Errorf("%d bytes: %d members, %v", len(text), len(got.Members), err)
	}
}

// Without a secret rank 0 listens at the group's address alone.
func TestAddressesToListenAt(t *testing.T) {
	for _, c := range []struct{ address, secret, want string }{
		{"node1:29500", "", "node1:29500"}, {"node1:29500", "s", ":29500"}, {"10.0.0.7:1", "", "10.0.0.7:1"}, {"10.0.0.7:1", "s", ":1"},
		{"127.0.0.1:5", "s", "127.0.0.1:5"}, {"localhost:5", "s", "localhost:5"}, {"[::1]:5", "s", "[::1]:5"}, {"localhost:5", "", "localhost:5"},
	} {
		if got := (Config{Address: c.address, Secret: c.secret}).addressToListenAt(); got != c.want {
			t.Errorf("%s with secret %q: %s, want %s", c.address, c.secret, got, c.want)
		}
	}
}
