package distributed

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/stheno-ml/stheno/internal/guard"
)

// This file is how two ranks make sure of each other. The caller says who it is, with a nonce. Who
// is called answers with a nonce of its own and a proof, the caller with another: HMACs over both
// nonces and all that the caller said, under a key that only the group knows. What is said are
// lines of JSON, so that a stranger is told from a rank by its first line.

const (
	protocol  = "stheno group 5"
	protocols = "stheno group " // of all versions
	maxLine   = 1 << 13
	maxBody   = 1 << 26 // the members of the largest group
	maxName   = 64
	// patience is how long the other end of a connection may take to say or to take a message: a
	// stranger that does neither holds nobody up.
	patience = 5 * time.Second
)

// hello is what a rank says of itself.
type hello struct {
	Protocol  string
	Job       string
	Rank      int
	Size      int
	Host      string
	Process   int
	Port      int // where it listens for others
	Meetings  int // of this group that it came from: 0 for a new process
	Nonce     string
	addressOf string // as rank 0 sees it
}

func (h hello) name() string {
	return fmt.Sprintf("rank %d (host %s, process %d)", h.Rank, plain(h.Host, maxName), h.Process)
}

// challenge is what a rank answers to one that calls, or why it does not.
type challenge struct{ Protocol, Error, Nonce, Proof string }

// reply is what the caller says then.
type reply struct{ Proof string }

// The two ends of a connection prove different things, so that neither can send back what the other
// has sent.
const (
	callerProof = "caller"
	calledProof = "called"
)

func newNonce() string {
	var nonce [32]byte
	rand.Read(nonce[:])
	return hex.EncodeToString(nonce[:])
}

// prove is the proof of one end, of what the caller said and the other's nonce.
func prove(key []byte, end string, said []byte, nonce string) string {
	mac := hmac.New(sha256.New, key)
	for _, part := range [][]byte{[]byte(protocol), []byte(end), said, []byte(nonce)} {
		binary.Write(mac, binary.LittleEndian, uint64(len(part)))
		mac.Write(part)
	}
	return hex.EncodeToString(mac.Sum(nil))
}

var errHungUp = errors.New("it hung up, as other versions of Stheno do")

// broken is the error of a connection, where others are of what was said.
type broken struct{ error }

func (b broken) Unwrap() error { return b.error }

var errOtherSecret = errors.New("it has another secret than this rank, or none: all ranks need the same in " + secretVariable)

// introduce says who this rank is to one that it has dialed, and makes sure of that one.
func introduce(conn net.Conn, key []byte, me hello) error {
	me.Nonce = newNonce()
	said, err := json.Marshal(me)
	if err != nil {
		return err
	}
	if err := send(conn, said); err != nil {
		return err
	}
	var c challenge
	switch err := hear(conn, &c); {
	case errors.Is(err, io.EOF):
		return broken{errHungUp}
	case err != nil:
		return err
	case c.Error != "":
		return errors.New(plain(c.Error, maxText))
	case c.Protocol != protocol:
		return fmt.Errorf("it is no rank of a group: it says %q", plain(c.Protocol, maxName))
	case !hmac.Equal([]byte(c.Proof), []byte(prove(key, calledProof, said, c.Nonce))):
		return errOtherSecret
	}
	return tell(conn, reply{prove(key, callerProof, said, c.Nonce)})
}

// receive hears who calls and makes sure of it.
func receive(conn net.Conn, key []byte) (hello, error) {
	var h hello
	conn.SetDeadline(time.Now().Add(patience))
	said, err := hearLine(conn)
	if err == nil {
		err = json.Unmarshal(said, &h)
	}
	if err != nil {
		return h, err
	}
	if h.Protocol != protocol {
		err := fmt.Errorf("a rank speaks %q, the one that it calls %q: all ranks need one version of Stheno", plain(h.Protocol, maxName), protocol)
		if strings.HasPrefix(h.Protocol, protocols) {
			tell(conn, challenge{Protocol: protocol, Error: err.Error()})
		}
		return h, err
	}
	c := challenge{Protocol: protocol, Nonce: newNonce()}
	c.Proof = prove(key, calledProof, said, c.Nonce)
	var r reply
	if err := errors.Join(tell(conn, c), hear(conn, &r)); err != nil {
		return h, err
	}
	if !hmac.Equal([]byte(r.Proof), []byte(prove(key, callerProof, said, c.Nonce))) {
		return h, errOtherSecret
	}
	conn.SetDeadline(time.Time{})
	host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	h.addressOf = net.JoinHostPort(host, fmt.Sprint(h.Port))
	return h, nil
}

// caller is a connection whose other end has proved who it is.
type caller struct {
	conn  net.Conn
	hello hello
}

// answerCalls hands out the ranks that call, until the listener is closed. Others are hung up on. A
// rank that nobody takes any more, as the context is at its end, is told so by late.
func answerCalls(ctx context.Context, listener net.Listener, key []byte, late func(caller)) <-chan caller {
	callers := make(chan caller)
	go func() {
		const first, longest = 5 * time.Millisecond, time.Second
		for pause := first; ; {
			conn, err := listener.Accept()
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
				if err == nil {
					conn.Close()
				}
				return
			}
			if err != nil { // such as too many open files, for now
				time.Sleep(pause)
				pause = min(2*pause, longest)
				continue
			}
			pause = first
			go func() {
				var h hello
				err := guard.Call("a caller", func() (err error) { h, err = receive(conn, key); return err })
				if err != nil {
					conn.Close()
					return
				}
				select {
				case callers <- caller{conn, h}:
				case <-ctx.Done():
					late(caller{conn, h})
					conn.Close()
				}
			}()
		}
	}()
	return callers
}

// endWith lets nothing wait on a connection beyond the end of a context, until stop is called. The
// connection is good for nothing any more if stop returns false.
func endWith(ctx context.Context, conn net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
}

// tell writes a message as a line.
func tell(conn net.Conn, message any) error {
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	return send(conn, text)
}

// send writes a line, and what follows it. Who does not take it within some time gets no more of
// it.
func send(conn net.Conn, line []byte, more ...[]byte) error {
	const slowest = 1 << 20 // bytes a second
	buffers, size := net.Buffers{line, []byte("\n")}, len(line)
	for _, m := range more {
		buffers, size = append(buffers, m), size+len(m)
	}
	conn.SetWriteDeadline(time.Now().Add(patience + time.Duration(size/slowest)*time.Second))
	_, err := buffers.WriteTo(conn)
	if err := errors.Join(err, conn.SetWriteDeadline(time.Time{})); err != nil {
		return broken{err}
	}
	return nil
}

// hear reads a message.
func hear(conn net.Conn, message any) error {
	line, err := hearLine(conn)
	if err != nil {
		return err
	}
	return json.Unmarshal(line, message)
}

// hearLine reads one line, a byte at a time, since what follows it is not for the reader of lines.
func hearLine(conn net.Conn) ([]byte, error) {
	var line []byte
	var b [1]byte
	for {
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return nil, broken{err}
		}
		if b[0] == '\n' {
			return line, nil
		}
		if line = append(line, b[0]); len(line) > maxLine {
			return nil, fmt.Errorf("a message is longer than %d bytes", maxLine)
		}
	}
}

// plain is a text from elsewhere as messages show it: so many bytes of it, without what moves a
// terminal's cursor.
func plain(text string, most int) string {
	if len(text) > most {
		text = text[:most] + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
