package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"trainyard/internal/fault"
	"trainyard/internal/id"
)

// TunnelKind is what a tunnel to a running job is for.
type TunnelKind string

// The kinds of tunnels.
const (
	TunnelExec TunnelKind = "exec" // a command beside the program of a rank
	TunnelPort TunnelKind = "port" // a connection to a port that the rank listens on
	TunnelGet  TunnelKind = "get"  // files of the working directory, as a tar stream
	TunnelPut  TunnelKind = "put"  // files for it
)

// TunnelStart says what a tunnel is for. It is the first message of whoever opens one.
type TunnelStart struct {
	Kind TunnelKind `json:"kind" enum:"exec,port,get,put"`
	Rank int        `json:"rank,omitempty" minimum:"0"`
	// Command is for exec; without one it is a shell.
	Command  []string  `json:"command,omitempty"`
	Terminal *Terminal `json:"terminal,omitempty" doc:"for exec: it gets a terminal"`
	Port     int       `json:"port,omitempty" doc:"for port" minimum:"1" maximum:"65535"`
	Path     string    `json:"path,omitempty" doc:"for get and put: below the working directory" maxLength:"4096"`
}

// Terminal is what a terminal is like.
type Terminal struct {
	Term string `json:"term,omitempty" doc:"its type, as in TERM" maxLength:"100"`
	WindowSize
}

// WindowSize is the size of a terminal in characters.
type WindowSize struct {
	Columns int `json:"columns" minimum:"0" maximum:"65535"`
	Rows    int `json:"rows" minimum:"0" maximum:"65535"`
}

// Bounds on a start.
const (
	maxCommand = 32 << 10
	maxTerm    = 100
	maxPath    = 4096
)

// Check refuses a start that cannot be carried out.
func (s *TunnelStart) Check() error {
	invalid := func(field, format string, args ...any) error {
		return fault.New(fault.Invalid, "bad_tunnel", format, args...).WithField(field)
	}

	size := 0
	for _, word := range s.Command {
		size += len(word) + 1
		if strings.ContainsRune(word, 0) {
			return invalid("command", "command must have no null characters")
		}
	}

	printable := func(text string) bool { return !strings.ContainsFunc(text, unprintable) }

	switch {
	case !slices.Contains([]TunnelKind{TunnelExec, TunnelPort, TunnelGet, TunnelPut}, s.Kind):
		return invalid("kind", "kind must be exec, port, get or put, got %q", s.Kind)
	case s.Rank < 0:
		return invalid("rank", "rank must be at least 0, got %d", s.Rank)
	case size > maxCommand:
		return invalid("command", "command must have at most %d bytes, got %d", maxCommand, size)
	case s.Kind == TunnelPort && (s.Port < 1 || s.Port > 65535):
		return invalid("port", "port must be an integer between 1 and 65535, got %d", s.Port)
	case len(s.Path) > maxPath || strings.ContainsRune(s.Path, 0):
		return invalid("path", "path must have at most %d bytes and no null characters", maxPath)
	case s.Terminal != nil && (len(s.Terminal.Term) > maxTerm || !printable(s.Terminal.Term)):
		return invalid("terminal", "the type of the terminal must be printable, with at most %d bytes", maxTerm)
	}

	return nil
}

// TunnelRequest asks an agent to open its end of a tunnel.
type TunnelRequest struct {
	ID    string      `json:"id"`
	Run   id.Run      `json:"run"`
	Start TunnelStart `json:"start"`
	// Shared says that the yard has one user, who may also be let into jobs that run as the user of the agent.
	Shared bool `json:"shared,omitempty"`
}

// TunnelControl is a message of a tunnel that is not data. One of its fields is set.
type TunnelControl struct {
	Start   *TunnelStart `json:"start,omitempty"`   // of the client, first
	Started bool         `json:"started,omitempty"` // of the agent, first
	Size    *WindowSize  `json:"size,omitempty"`    // of the client: the terminal has changed
	Signal  string       `json:"signal,omitempty"`  // of the client: INT, TERM, …
	Taken   int          `json:"taken,omitempty"`   // of the agent: bytes of input that the job has taken since
	End     *TunnelEnd   `json:"end,omitempty"`     // of the agent or the server: the last message
	Problem *Problem     `json:"problem,omitempty"` // of the agent or the server, likewise: why it failed
}

// TunnelEnd is how a command ended.
type TunnelEnd struct {
	Exit   int    `json:"exit"`             // its code; 128 and the number of the signal that ended it
	Reason string `json:"reason,omitempty"` // why it was ended; absent if it ended by itself
}

// The data of a tunnel. Each message with data begins with one of them; one with nothing else says that no more of it
// comes.
const (
	StreamIn  byte = 0 // from the client
	StreamOut byte = 1
	StreamErr byte = 2
)

const (
	// TunnelWindow is how much input a client may send that the job has not taken yet. So the agent always reads, and
	// hears of signals, sizes and the end of the tunnel even if the job takes no input.
	TunnelWindow = 1 << 20
	// TunnelTaken is how much of it the agent lets come together before it says that it was taken.
	TunnelTaken = TunnelWindow / 8
	// TunnelChunk is the most data of one message.
	TunnelChunk = 64 << 10
	// maxTunnelMessage bounds a message.
	maxTunnelMessage = 128 << 10
)

// Tunnel is one end of a tunnel to a running job. One goroutine may receive, and several may send: each waits until the
// other side has taken what was sent before, so neither side stores more than a few messages.
type Tunnel struct {
	conn   *websocket.Conn
	gather *gatherConn // what the connection is made of; nil for one that was accepted
	buf    []byte      // of what was received last

	mu    sync.Mutex
	ahead int           // bytes of input that were sent and not taken yet
	taken chan struct{} // closed when some were taken
}

// NewTunnel returns the tunnel over a connection.
func NewTunnel(conn *websocket.Conn) *Tunnel {
	conn.SetReadLimit(maxTunnelMessage)

	return &Tunnel{conn: conn, buf: make([]byte, 0, TunnelChunk+1), taken: make(chan struct{})}
}

// TunnelMessage is what was received: a control message, or data of a stream. It is valid until the next one.
type TunnelMessage struct {
	Control *TunnelControl
	Stream  byte
	Data    []byte // empty at the end of the stream
	raw     []byte
	text    bool
}

// Receive waits for the next message.
func (t *Tunnel) Receive(ctx context.Context) (TunnelMessage, error) {
	kind, r, err := t.conn.Reader(ctx)
	if err != nil {
		return TunnelMessage{}, err
	}

	t.buf = t.buf[:0]

	for {
		if len(t.buf) == cap(t.buf) {
			t.buf = slices.Grow(t.buf, len(t.buf))
		}

		n, err := r.Read(t.buf[len(t.buf):cap(t.buf)])
		t.buf = t.buf[:len(t.buf)+n]

		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return TunnelMessage{}, err
		}
	}

	m := TunnelMessage{raw: t.buf, text: kind == websocket.MessageText}

	switch {
	case m.text:
		m.Control = &TunnelControl{}
		if err := json.Unmarshal(t.buf, m.Control); err != nil {
			return TunnelMessage{}, fmt.Errorf("read a message of the tunnel: %w", err)
		}

		t.noteTaken(m.Control.Taken)
	case len(t.buf) == 0 || t.buf[0] > StreamErr:
		return TunnelMessage{}, errors.New("read a message of the tunnel: its first byte names no stream")
	default:
		m.Stream, m.Data = t.buf[0], t.buf[1:]
	}

	return m, nil
}

// Pass sends a message on as it was received.
func (t *Tunnel) Pass(ctx context.Context, m TunnelMessage) error {
	kind := websocket.MessageBinary
	if m.text {
		kind = websocket.MessageText
	}

	return t.write(ctx, kind, m.raw)
}

// write sends one message.
func (t *Tunnel) write(ctx context.Context, kind websocket.MessageType, data []byte) error {
	if t.gather == nil {
		return t.conn.Write(ctx, kind, data)
	}

	t.gather.hold()
	err := t.conn.Write(ctx, kind, data)

	// A connection on which a part of a message was sent is of no use any more.
	stop := context.AfterFunc(ctx, func() { _ = t.conn.CloseNow() })
	defer stop()

	return errors.Join(err, t.gather.release(err != nil))
}

// Control sends a control message.
func (t *Tunnel) Control(ctx context.Context, c TunnelControl) error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}

	return t.write(ctx, websocket.MessageText, text)
}

// noteTaken lets so many more bytes of input be sent.
func (t *Tunnel) noteTaken(n int) {
	if n <= 0 {
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	t.ahead = max(t.ahead-n, 0)
	close(t.taken)
	t.taken = make(chan struct{})
}

// reserve waits until so many bytes of input may be sent. Somebody must receive meanwhile.
func (t *Tunnel) reserve(ctx context.Context, n int) error {
	for {
		t.mu.Lock()
		fits, taken := t.ahead+n <= TunnelWindow, t.taken
		if fits {
			t.ahead += n
		}
		t.mu.Unlock()

		if fits {
			return nil
		}

		select {
		case <-taken:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Copy sends what r has as data of a stream, and that it has ended. It returns nil if it was all sent. Of input it
// sends no more than the other side can store: somebody must receive meanwhile.
func (t *Tunnel) Copy(ctx context.Context, stream byte, r io.Reader) error {
	buf := make([]byte, TunnelChunk+1)
	buf[0] = stream

	for {
		n, err := r.Read(buf[1:])
		if n > 0 && stream == StreamIn {
			if err := t.reserve(ctx, n); err != nil {
				return err
			}
		}

		if n > 0 {
			if err := t.write(ctx, websocket.MessageBinary, buf[:n+1]); err != nil {
				return err
			}
		}

		if err != nil {
			end := t.write(ctx, websocket.MessageBinary, buf[:1])
			if errors.Is(err, io.EOF) {
				err = nil
			}

			return errors.Join(err, end)
		}
	}
}

// Finish says that nothing follows, and ends the tunnel when the other side has taken all.
func (t *Tunnel) Finish() error { return t.conn.Close(websocket.StatusNormalClosure, "") }

// Close ends the tunnel at once.
func (t *Tunnel) Close() error { return t.conn.CloseNow() }

// OpenTunnel opens a tunnel to a running job. It returns when the other end has begun with what it is for.
func (c *Client) OpenTunnel(ctx context.Context, j id.Job, start TunnelStart) (*Tunnel, error) {
	t, err := c.dialTunnel(ctx, at("jobs", string(j), "tunnel"))
	if err != nil {
		return nil, err
	}

	err = t.Control(ctx, TunnelControl{Start: &start})

	var first TunnelMessage
	if err == nil {
		first, err = t.Receive(ctx)
	}

	switch {
	case err != nil:
		err = LostTunnel(err)
	case first.Control != nil && first.Control.Problem != nil:
		err = first.Control.Problem.fault()
	case first.Control == nil || !first.Control.Started:
		err = errors.New("open a tunnel: the server began with something else")
	default:
		return t, nil
	}

	return nil, errors.Join(err, t.Close())
}

// LostTunnel is the error for a tunnel whose connection broke.
func LostTunnel(err error) error {
	return fault.New(fault.Unavailable, "tunnel_lost", "the connection to the server was lost").
		WithRemedy("open it again").WithCause(err)
}

// Failure returns the problem that a control message brings as an error.
func (c *TunnelControl) Failure() error {
	if c.Problem == nil {
		return nil
	}

	return c.Problem.fault()
}

// AnswerTunnel opens the agent's end of a tunnel.
func (c *Client) AnswerTunnel(ctx context.Context, tunnel string) (*Tunnel, error) {
	return c.dialTunnel(ctx, "/agent/v1/tunnels/"+url.PathEscape(tunnel))
}

// dialTunnel connects to the server by WebSocket.
func (c *Client) dialTunnel(ctx context.Context, path string) (*Tunnel, error) {
	var conn *websocket.Conn
	var gather *gatherConn

	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		gather, _ = info.Conn.(*gatherConn)
	}})

	//nolint:bodyclose // the answer has no body: the connection is that of the WebSocket
	resp, err := c.try(ctx, nil, true, func(base string) (*http.Response, error) {
		header := http.Header{}
		if c.token != "" {
			header.Set("Authorization", "Bearer "+c.token)
		}

		if c.agent != "" {
			header.Set(AgentHeader, c.agent)
		}

		made, resp, err := websocket.Dial(ctx, base+path, &websocket.DialOptions{HTTPClient: c.tunnel, HTTPHeader: header})

		switch {
		case err == nil:
			conn = made
			return resp, nil
		case resp != nil && resp.StatusCode >= http.StatusBadRequest:
			return nil, problemError(resp)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}

		return nil, fault.New(fault.Unavailable, "unreachable", "cannot reach the server at %s: %v", base, rootCause(err)).
			WithRemedy("is the server running, and is the address right?").WithCause(err)
	})
	if err != nil {
		return nil, err
	}

	if c.onDemo != nil && resp.Header.Get(HeaderDemo) != "" {
		c.onDemo()
	}

	t := NewTunnel(conn)
	t.gather = gather

	return t, nil
}
