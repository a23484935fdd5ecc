package distributed

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// heard is a connection whose other end has said some bytes and hung up.
func heard(content []byte) *lanConn {
	in := newPipe(len(content))
	in.data, in.ended = content, true
	return &lanConn{in: in, out: newPipe(1 << 30), local: "127.0.0.1:1", remote: "127.0.0.1:2"}
}

// Whatever comes from a rank is frames or an error.
func FuzzFrames(f *testing.F) {
	conn := &lanConn{in: newPipe(0), out: newPipe(1 << 20)}
	l := newLink(1, "rank 1", conn)
	for _, frame := range []frame{
		{kind: dataFrame, operation: 1, body: []byte("12345678")}, {kind: aliveFrame, group: 3, operation: 7}, {kind: goodbyeFrame}, {kind: abortFrame, body: []byte("why\x1b")}, ending(lostRank{1, errors.New("gone\x1b")}), {kind: lostFrame, body: []byte("x")},
	} {
		if err := l.send(frame, time.Minute); err != nil {
			f.Fatal(err)
		}
		f.Add(conn.out.data)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		l := newLink(1, "rank 1", heard(content))
		for i := range l.lanes {
			l.lanes[i].arrived = make(chan frame, len(content)/headerSize+1)
		}
		err := l.receive(nil)
		if err != nil && (strings.ContainsAny(err.Error(), "\x1b\x00\n") || len(err.Error()) > 4*maxText) {
			t.Errorf("the error is %q", err)
		}
	})
}

// Whatever comes while ranks meet is an error, or what this rank knows.
func FuzzMeeting(f *testing.F) {
	f.Add([]byte(`{"Protocol":"stheno group 5","Job":"a","Rank":1,"Size":2,"Host":"h","Process":7,"Port":9,"Nonce":"00"}` + "\n" + `{"Proof":"00"}` + "\n"))
	f.Add([]byte(`{"Protocol":"stheno group 5","Error":"","Nonce":"00","Proof":"00"}` + "\n"))
	f.Add([]byte(`{"Protocol":"stheno group 5","Bytes":77}` + "\n" + `{"Key":"k","Ranks":[0,1],"Members":[{"Name":"a","Address":"b:1"},{"Name":"b","Address":"c"}]}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		key := []byte("a secret")
		if _, err := receive(heard(content), key); err == nil {
			t.Error("a caller without the secret is known")
		}
		if err := introduce(heard(content), key, hello{Protocol: protocol}); err == nil {
			t.Error("one that is called without the secret is known")
		}
		group, err := meeting{Config: Config{Rank: 1, Size: 2}}.hearRoster(heard(content))
		if err == nil && len(group.Members) != 2 {
			t.Errorf("the group has %d members", len(group.Members))
		}
	})
}
