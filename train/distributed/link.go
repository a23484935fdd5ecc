package distributed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// link is the connection to another rank. What it carries are frames: a kind, the group and the
// number of the operation that it belongs to, the length of what follows.
type link struct {
	rank int    // of the other, as it was started
	name string // "rank 2 (host node7, process 1234)"
	conn net.Conn

	write    sync.Mutex
	lanes    [maxGroups]lane
	lastSeen atomic.Int64 // when the other's last frame came, in Unix nanoseconds
	left     atomic.Bool  // it said goodbye
	waited   atomic.Int64 // how long this rank has waited for data of the other, in nanoseconds
}

// lane is what comes for one group of those that both ranks are in.
type lane struct {
	arrived chan frame    // data
	at      atomic.Uint64 // the operation that the other is at
}

// peer is another rank as one group sees it.
type peer struct {
	rank int // in the group
	*link
	*lane
}

func newPeer(rank int, l *link, group uint8) *peer { return &peer{rank, l, &l.lanes[group]} }

type frameKind uint8

const (
	dataFrame    frameKind = iota + 1
	aliveFrame             // the operation that the sender is at; nothing follows
	goodbyeFrame           // the sender leaves the group, having done all that it had to
	abortFrame             // why the sender ends, as text
	lostFrame              // that a rank is lost: its number in 4 bytes, and why as text
)

type frame struct {
	kind      frameKind
	group     uint8
	operation uint64
	body      []byte
}

const (
	headerSize = 1 + 1 + 8 + 8
	maxFrame   = 1 << 20 // data is cut into frames of at most this many bytes
	maxText    = 1 << 12
	maxGroups  = 16 // a whole and its parts
	rankSize   = 4  // bytes
)

// ErrLost is what the error of an operation is when a rank is lost, so that [Group.Renew] can help.
var ErrLost = errors.New("a rank is lost")

// lostRank is an error that is [ErrLost].
type lostRank struct {
	rank int // as it was started
	error
}

func (l lostRank) Is(target error) bool { return target == ErrLost }

func (l lostRank) Unwrap() error { return l.error }

// lost is the error that nothing more comes from the other rank.
func (l *link) lost(format string, args ...any) error {
	return lostRank{l.rank, fmt.Errorf(format, args...)}
}

// mutual is an error of receive for rank self: who says that this rank is lost has no connection
// with it any more, and is lost to this one.
func (l *link) mutual(self int, err error) error {
	if lost := (lostRank{}); errors.As(err, &lost) && lost.rank == self {
		return l.lost("%s has lost this rank: %w", l.name, lost.error)
	}
	return err
}

// ending is the frame that tells others why this rank ends.
func ending(err error) frame {
	text := []byte(err.Error())
	text = text[:min(len(text), maxText)]
	var lost lostRank
	if !errors.As(err, &lost) {
		return frame{kind: abortFrame, body: text}
	}
	return frame{kind: lostFrame, body: append(binary.LittleEndian.AppendUint32(nil, uint32(lost.rank)), text...)}
}

func newLink(rank int, name string, conn net.Conn) *link {
	l := &link{rank: rank, name: name, conn: conn}
	for i := range l.lanes {
		l.lanes[i].arrived = make(chan frame, 4)
	}
	l.lastSeen.Store(time.Now().UnixNano())
	return l
}

// send writes one frame. Its bytes are free to change when it returns.
func (l *link) send(f frame, deadline time.Duration) error {
	var header [headerSize]byte
	header[0], header[1] = byte(f.kind), f.group
	binary.LittleEndian.PutUint64(header[2:], f.operation)
	binary.LittleEndian.PutUint64(header[10:], uint64(len(f.body)))
	l.write.Lock()
	defer l.write.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(deadline)); err != nil {
		return err
	}
	buffers := net.Buffers{header[:], f.body}
	_, err := buffers.WriteTo(l.conn)
	return err
}

// receive reads frames until the connection ends or the other rank does. Data go to whoever waits
// for them.
func (l *link) receive(done <-chan struct{}) error {
	var header [headerSize]byte
	for {
		if _, err := io.ReadFull(l.conn, header[:]); err != nil {
			if l.left.Load() {
				return nil
			}
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return l.lost("%s ended without leaving the group", l.name)
			}
			return l.lost("%s: %w", l.name, err)
		}
		f := frame{kind: frameKind(header[0]), group: header[1], operation: binary.LittleEndian.Uint64(header[2:])}
		length := binary.LittleEndian.Uint64(header[10:])
		limit := uint64(0)
		switch f.kind {
		case dataFrame:
			limit = maxFrame
		case abortFrame:
			limit = maxText
		case lostFrame:
			limit = rankSize + maxText
		case aliveFrame, goodbyeFrame:
		default:
			return fmt.Errorf("%s sent a frame of kind %d, which there is not", l.name, f.kind)
		}
		if f.group >= maxGroups {
			return fmt.Errorf("%s sent a frame of group %d, there are %d at most", l.name, f.group, maxGroups)
		}
		if length > limit {
			return fmt.Errorf("%s sent a frame of %d bytes, its kind has at most %d", l.name, length, limit)
		}
		f.body = make([]byte, length)
		if _, err := io.ReadFull(l.conn, f.body); err != nil {
			return l.lost("%s: the connection ended within a frame: %w", l.name, err)
		}
		l.lastSeen.Store(time.Now().UnixNano())
		lane := &l.lanes[f.group]
		lane.at.Store(max(lane.at.Load(), f.operation))
		switch f.kind {
		case dataFrame:
			select {
			case lane.arrived <- f:
			case <-done:
				return nil
			}
		case goodbyeFrame:
			l.left.Store(true)
		case abortFrame:
			return errors.New(plain(string(f.body), maxText))
		case lostFrame:
			if len(f.body) < rankSize {
				return fmt.Errorf("%s sent of a lost rank %d bytes, it needs to be at least %d", l.name, len(f.body), rankSize)
			}
			rank := binary.LittleEndian.Uint32(f.body)
			return lostRank{int(int32(rank)), errors.New(plain(string(f.body[rankSize:]), maxText))}
		}
	}
}
