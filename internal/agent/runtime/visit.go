package runtime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/visitor"
	"trainyard/internal/agent/sandbox"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Visit is what a person wants to start beside the program of a rank.
type Visit struct {
	ID      string
	Command []string      // a shell if there is none
	Copy    *visitor.Copy // files are copied instead
	Env     []string      // beside that of the program
	Size    *WindowSize   // of its terminal; nil for none
	// Shared allows it where the program runs as the user of the agent.
	Shared bool
}

// WindowSize is that of a terminal, in characters.
type WindowSize struct{ Columns, Rows uint16 }

// Visitor is a process beside the program of a rank. Its output must be read to the end: it waits for that.
type Visitor interface {
	Input() io.WriteCloser
	Output() io.Reader
	Errors() io.Reader // nil if it has a terminal
	Resize(size WindowSize) error
	Signal(name string) error
	// Ended returns a channel with its end. None of its processes is left by then.
	Ended() <-chan visitor.End
	// Close kills it with all that it has started, and frees what it had.
	Close() error
}

// visitTries is how often a visitor is tried while the program is just being started.
const (
	visitTries = 100
	visitPause = 20 * time.Millisecond
)

// Visit starts a process beside the program of a rank, inside the same walls: as its user, in its namespaces, cgroup,
// environment and working directory.
func (r *Runtime) Visit(ctx context.Context, run id.Run, n int, v Visit) (Visitor, error) {
	rk, err := r.visitable(run, n, v.Shared)
	if err != nil {
		return nil, err
	}

	for try := 0; ; try++ {
		g, err := startVisitor(rk, v)
		if errors.Is(err, errNotStarted) && try < visitTries && clock.Sleep(ctx, visitPause) {
			continue
		}

		if err != nil {
			return nil, err
		}

		return g, nil
	}
}

// visitable returns a rank whose program runs and may have company.
func (r *Runtime) visitable(run id.Run, n int, shared bool) (*rank, error) {
	rk, err := r.lookup(run, n)
	if err != nil {
		return nil, err
	}

	r.mu.Lock()
	st := rk.state.Status
	r.mu.Unlock()

	switch {
	case st.State != job.RunRunning:
		return nil, fault.New(fault.Conflict, "not_running", "rank %d of run %s is %s: its program does not run", n, run,
			st.State)
	case st.Suspension.On:
		return nil, fault.New(fault.Conflict, "suspended", "rank %d of run %s is suspended", n, run).
			WithRemedy("wait until it continues")
	case rk.rec.User == nil && !shared:
		return nil, fault.New(fault.Conflict, "not_isolated",
			"jobs of this node run as the user of its agent, without walls, so nobody can be let into one").
			WithRemedy("isolate jobs: run the agent as root, with --isolation users")
	}

	return rk, nil
}

// errNotStarted says that the program of a rank has not come far enough.
var errNotStarted = fault.New(fault.Conflict, "not_running", "the program has not started yet")

// guest is a visitor that the supervisor of its rank has started.
type guest struct {
	conn   *visitor.Conn
	input  *os.File
	output *os.File // the same as input for a terminal
	errors *os.File // nil for a terminal
	ended  chan visitor.End
	over   atomic.Bool // it has ended
	close  sync.Once
}

// drainTime is how long the output of a visitor that has ended is awaited. A process that hides from its end, by
// leaving its session and clearing its environment, may hold it open until the job ends.
const drainTime = 2 * time.Second

func startVisitor(rk *rank, v Visit) (*guest, error) {
	conn, err := visitor.Dial(rk.dir)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fault.New(fault.Conflict, "no_visitors", "run %s was started by an agent of an earlier version",
			rk.rec.Run).WithRemedy("it can be entered after its next start")
	}

	if err != nil {
		return nil, fmt.Errorf("connect to the supervisor of %s: %w", rk.name, err)
	}

	g := &guest{conn: conn, ended: make(chan visitor.End, 1)}

	theirs, err := g.open(v.Size, rk.rec.User)
	if err == nil {
		err = g.begin(v, theirs, string(rk.rec.Job))
	}

	visitor.CloseAll(theirs)

	if err != nil {
		return nil, errors.Join(err, g.Close())
	}

	go g.await()

	return g, nil
}

// open makes the input and output of a visitor, and returns its own ends.
func (g *guest) open(size *WindowSize, user *sandbox.User) (theirs []*os.File, err error) {
	if size != nil {
		g.input, theirs, err = openTerminal()
		g.output = g.input

		if err == nil {
			err = g.Resize(*size)
		}
	} else {
		theirs, err = g.openPipes()
	}

	// A program may open /dev/stdout, or its terminal by name: its user must be allowed to, and nobody else.
	for _, f := range theirs {
		if err == nil && user != nil {
			err = f.Chown(user.UID, user.GID)
		}

		if err == nil && size != nil {
			err = f.Chmod(0o600)
		}
	}

	if err != nil {
		return theirs, fmt.Errorf("open the input and output of a visitor: %w", err)
	}

	return theirs, nil
}

func (g *guest) openPipes() (theirs []*os.File, err error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}

	g.input, theirs = inW, []*os.File{inR}

	outR, outW, err := os.Pipe()
	if err != nil {
		return theirs, err
	}

	g.output, theirs = outR, append(theirs, outW)

	errR, errW, err := os.Pipe()
	if err != nil {
		return theirs, err
	}

	g.errors, theirs = errR, append(theirs, errW)

	return theirs, nil
}

// openTerminal opens a terminal: the agent's end, and that of the visitor.
func openTerminal() (*os.File, []*os.File, error) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}

	var number int
	err = control(master, func(fd int) (err error) {
		if err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err == nil {
			number, err = unix.IoctlGetInt(fd, unix.TIOCGPTN)
		}

		return err
	})

	var slave *os.File
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}

	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}

	return master, []*os.File{slave}, nil
}

// control calls fn with the descriptor of a file that stays as it is: reading from it can be interrupted.
func control(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}

	var failure error
	err = raw.Control(func(fd uintptr) { failure = fn(int(fd)) })

	return errors.Join(err, failure)
}

// begin asks the supervisor for the visitor and waits until it is there.
func (g *guest) begin(v Visit, theirs []*os.File, name string) error {
	request := visitor.Request{ID: v.ID, Args: v.Command, Copy: v.Copy, Env: v.Env, Terminal: v.Size != nil}
	if v.Size != nil && len(v.Command) == 0 {
		request.Env = append(request.Env, "PS1="+name+":\\w\\$ ")
	}

	if err := g.conn.Send(request, theirs...); err != nil {
		return fmt.Errorf("ask the supervisor for a visitor: %w", err)
	}

	var answer visitor.Message

	_, err := g.conn.Receive(&answer)
	switch {
	case err != nil:
		return fault.New(fault.Conflict, "not_running", "the run has just ended").WithCause(err)
	case answer.Error == visitor.NotStarted:
		return errNotStarted
	case answer.Error != "":
		return fault.New(fault.Conflict, "visitor_refused", "%s", answer.Error)
	}

	return nil
}

// await waits for the end of the visitor.
func (g *guest) await() {
	for {
		var m visitor.Message
		if _, err := g.conn.Receive(&m); err != nil { // the supervisor was killed, which ends the run
			m.End = &visitor.End{Status: uint32(unix.SIGKILL), Reason: "the run has ended"}
		}

		if m.End != nil {
			g.over.Store(true)
			g.expectEnd(g.output)
			g.expectEnd(g.errors)
			g.ended <- *m.End

			return
		}
	}
}

// expectEnd bounds how long a read from the output of a visitor that has ended waits.
func (g *guest) expectEnd(f *os.File) {
	if f != nil {
		_ = f.SetReadDeadline(clock.Deadline(drainTime)) // it may be closed already
	}
}

func (g *guest) Input() io.WriteCloser {
	if g.output == g.input {
		return terminalInput{g.input}
	}

	return g.input
}

func (g *guest) Output() io.Reader { return outlet{g, g.output} }

func (g *guest) Errors() io.Reader {
	if g.errors == nil {
		return nil
	}

	return outlet{g, g.errors}
}

func (g *guest) Ended() <-chan visitor.End { return g.ended }

func (g *guest) Resize(size WindowSize) error {
	if g.output != g.input {
		return nil
	}

	return control(g.input, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: size.Columns, Row: size.Rows})
	})
}

// Signal sends a signal, by a name such as INT.
func (g *guest) Signal(name string) error {
	number := unix.SignalNum("SIG" + name)
	if number == 0 {
		return fault.New(fault.Invalid, "bad_signal", "signal must be a name such as INT or TERM, got %q", name)
	}

	return g.conn.Send(visitor.Message{Signal: int(number)})
}

func (g *guest) Close() (err error) {
	g.close.Do(func() {
		err = g.conn.Close()
		for _, f := range []*os.File{g.input, g.output, g.errors} {
			if f != nil {
				_ = f.Close() // a terminal is closed twice, and an input may be closed already
			}
		}
	})

	return err
}

// terminalInput is the input of a terminal: its end is a character.
type terminalInput struct{ *os.File }

func (t terminalInput) Close() error {
	_, err := t.Write([]byte{4})
	return err
}

// outlet is an output of a visitor. Reading from a terminal fails when no process has it open any more, which is its
// end.
type outlet struct {
	g    *guest
	file *os.File
}

func (o outlet) Read(buf []byte) (int, error) {
	if o.g.over.Load() {
		o.g.expectEnd(o.file)
	}

	n, err := o.file.Read(buf)
	if errors.Is(err, unix.EIO) || errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}

	return n, err
}
