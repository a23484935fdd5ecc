package page

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/stheno-ml/stheno/internal/loopback"
)

// server answers GET and HEAD, each over a connection of its own. It does what a page on this
// machine needs of HTTP: the server of net/http would double what a first build of a training
// program compiles besides Gorgonia.
type server struct {
	listener net.Listener
	routes   map[string]handler

	mu       sync.Mutex
	open     map[net.Conn]bool // whether it has asked for something
	closed   bool
	answered sync.Cond // when one that has asked has its answer
}

// handler answers a request. An error is of the connection.
type handler func(request, *response) error

// request is what was asked for.
type request struct {
	head  bool // without the content
	path  string
	query url.Values
}

const (
	mostConnections = 32
	longestHead     = 16 << 10 // bytes, of a request
	patience        = 10 * time.Second
)

// serve answers what comes to a listener.
func serve(l net.Listener, routes map[string]handler) *server {
	s := &server{listener: l, routes: routes, open: map[net.Conn]bool{}}
	s.answered.L = &s.mu
	go s.accept()
	return s
}

func (s *server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(patience / 100) // such as too many open files
			continue
		}
		if !s.add(conn) {
			conn.Close()
			continue
		}
		go func() {
			defer s.remove(conn)
			s.converse(conn)
		}()
	}
}

func (s *server) add(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.open) >= mostConnections {
		return false
	}
	s.open[conn] = false
	return true
}

func (s *server) remove(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, conn)
	s.answered.Broadcast()
}

// asked notes that a connection has a request, whose answer is waited for at the end.
func (s *server) asked(conn net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[conn] = true
}

// close takes no more requests, and waits so long for answers.
func (s *server) close(wait time.Duration) {
	s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	late := time.AfterFunc(wait, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for conn := range s.open {
			conn.Close()
		}
	})
	defer late.Stop()
	for conn, asked := range s.open {
		if !asked {
			conn.Close()
		}
	}
	for len(s.open) > 0 {
		s.answered.Wait()
	}
}

// converse reads a request and answers it.
func (s *server) converse(conn net.Conn) {
	conn.SetReadDeadline(time.Now().Add(patience))
	lines := bufio.NewReader(io.LimitReader(conn, longestHead))
	r, status, err := readRequest(lines)
	w := &response{conn: conn, head: r.head}
	if err != nil && status == 0 {
		return // there is nobody to answer
	}
	s.asked(conn)
	handle, found := s.routes[r.path]
	switch {
	case err != nil:
		w.fail(status, err)
	case !found:
		w.fail(404, fmt.Errorf("there is nothing at %s", r.path))
	default:
		handle(r, w)
	}
	hangUp(conn)
}

// hangUp ends a connection so that the answer arrives: one that is closed with something unread is
// reset, and what is under way is lost.
func hangUp(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		conn.SetReadDeadline(time.Now().Add(time.Second))
		io.CopyN(io.Discard, conn, 1<<20)
	}
}

// readRequest reads up to the empty line. An error comes with the status that answers it, 0 where
// the connection has ended.
func readRequest(lines *bufio.Reader) (r request, status int, err error) {
	first, err := readLine(lines)
	if err != nil {
		return r, 0, err
	}
	header, err := readHeader(lines)
	if err != nil {
		return r, 400, err
	}
	method, rest, _ := strings.Cut(first, " ")
	target, version, _ := strings.Cut(rest, " ")
	if !strings.HasPrefix(version, "HTTP/1.") {
		return r, 400, fmt.Errorf("%.40q is no request of HTTP/1", first)
	}
	if hosts := header["host"]; len(hosts) != 1 || !loopback.IsHost(hosts[0]) {
		return r, 403, errors.New("this page is of this machine alone: the host needs to be localhost, 127.0.0.1 or [::1]")
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return r, 400, errors.New("the address cannot be read")
	}
	for _, site := range header["sec-fetch-site"] {
		if site != "same-origin" && site != "none" && u.Path != "/" {
			return r, 403, errors.New("another page has asked, this is for its own page alone")
		}
	}
	if method != "GET" && method != "HEAD" {
		return r, 405, fmt.Errorf("the method is %.20q, it needs to be GET", method)
	}
	return request{head: method == "HEAD", path: u.Path, query: u.Query()}, 0, nil
}

func readLine(lines *bufio.Reader) (string, error) {
	line, err := lines.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// readHeader reads the fields of a request by their names in small letters.
func readHeader(lines *bufio.Reader) (map[string][]string, error) {
	header := map[string][]string{}
	for {
		line, err := readLine(lines)
		if err != nil {
			return nil, errors.New("the header has no end, or too many bytes")
		}
		if line == "" {
			return header, nil
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok {
			return nil, errors.New("the header has a line without a colon")
		}
		name = strings.ToLower(name)
		header[name] = append(header[name], strings.TrimSpace(value))
	}
}

// response is the answer to a request.
type response struct {
	conn net.Conn
	head bool // no content is wanted
}

// Write sends a part of the content.
func (w *response) Write(content []byte) (int, error) {
	if w.head {
		return len(content), nil
	}
	return w.send(content)
}

func (w *response) send(content []byte) (int, error) {
	if err := w.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return 0, err
	}
	return w.conn.Write(content)
}

// statuses are the words for the numbers.
var statuses = map[int]string{
	200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 410: "Gone",
	429: "Too Many Requests", 500: "Internal Server Error",
}

// begin sends what comes before the content, which ends with the connection. Nothing from elsewhere
// may be loaded, and no other page may show this one.
func (w *response) begin(status int, kind string) error {
	_, err := w.send(fmt.Appendf(nil, "HTTP/1.1 %d %s\r\n"+
		"Content-Type: %s\r\n"+
		"Connection: close\r\n"+
		"Cache-Control: no-store\r\n"+
		"X-Content-Type-Options: nosniff\r\n"+
		"Referrer-Policy: no-referrer\r\n"+
		"Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "+
		"connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n\r\n",
		status, statuses[status], kind))
	return err
}

// whole sends an answer in one piece.
func (w *response) whole(status int, kind string, content []byte) error {
	if err := w.begin(status, kind); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
