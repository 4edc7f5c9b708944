package sandbox

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/process"
	"trainyard/internal/agent/runtime/visitor"
)

// visit is a visitor that is to be started in a space: beside the program, as its user and with its rights.
type visit struct {
	visitor.Request

	Path string   `json:"path"`
	Argv []string `json:"argv"`
	Env  []string `json:"environ"`
	Dir  string   `json:"dir"`
}

// sent is a signal for a visitor.
type sent struct {
	ID     string `json:"id"`
	Number int    `json:"number"`
}

// guests are the visitors of a space, seen from outside.
type guests struct {
	mu   sync.Mutex
	ends map[string]chan syscall.WaitStatus
	gone bool // the space has ended
}

// expect returns a channel for the end of a visitor.
func (g *guests) expect(id string) <-chan syscall.WaitStatus {
	g.mu.Lock()
	defer g.mu.Unlock()

	end := make(chan syscall.WaitStatus, 1)
	if g.gone {
		end <- killedStatus
		return end
	}

	g.ends[id] = end

	return end
}

func (g *guests) end(id string, status syscall.WaitStatus) {
	g.mu.Lock()
	defer g.mu.Unlock()

	if end := g.ends[id]; end != nil {
		end <- status
		delete(g.ends, id)
	}
}

// killedStatus is that of a process that SIGKILL has ended.
const killedStatus = syscall.WaitStatus(unix.SIGKILL)

// endAll reports the end of all visitors: the kernel has killed them with the space.
func (g *guests) endAll() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.gone = true
	for id, end := range g.ends {
		end <- killedStatus
		delete(g.ends, id)
	}
}

// Visit starts a visitor in the space, with the rights, the environment and the working directory of p, and returns a
// channel with its end. By then none of its processes is left.
func (s *Space) Visit(r visitor.Request, p Program, files []*os.File) (<-chan syscall.WaitStatus, error) {
	end := s.guests.expect(r.ID)
	v := visit{Request: r, Path: p.Path, Argv: p.Args, Env: p.Env, Dir: p.Dir}
	v.Request.Args, v.Request.Env = nil, nil // they are in what is started

	if _, err := s.ask(request{Visit: &v}, files...); err != nil {
		s.guests.end(r.ID, 0)
		return nil, err
	}

	return end, nil
}

// EndVisit kills a visitor and all that it has started.
func (s *Space) EndVisit(id string) error {
	if _, err := s.ask(request{EndVisit: id}); err != nil && !errors.Is(err, ErrGone) {
		return err
	}

	return nil
}

// SignalVisit sends a signal to the process group of a visitor.
func (s *Space) SignalVisit(id string, number int) error {
	_, err := s.ask(request{Signal: &sent{id, number}})
	return err
}

// inbox reads the requests of a supervisor, and keeps the descriptors that come with them.
type inbox struct{ files []*os.File }

// Read is part of io.Reader.
func (b *inbox) Read(buf []byte) (int, error) {
	for {
		n, files, err := visitor.Receive(connFD, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}

		b.files = append(b.files, files...)
		if err == nil && n == 0 {
			err = errors.New("the supervisor is gone")
		}

		return n, err
	}
}

// take returns the descriptors of the request that was read last.
func (b *inbox) take() []*os.File {
	files := b.files
	b.files = nil

	return files
}

// visits are the visitors of a space, seen from its first process.
type visits struct {
	mu   sync.Mutex
	byID map[string]process.Process
}

func (v *visits) find(id string) (process.Process, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()

	p, ok := v.byID[id]

	return p, ok
}

// receive starts a visitor.
func (p *initProcess) receive(v visit) {
	files := p.files.take()
	err := p.startVisit(v, files)
	visitor.CloseAll(files)

	if err != nil {
		p.reply(reply{Error: err.Error()})
		return
	}

	p.reply(reply{})
}

func (p *initProcess) startVisit(v visit, files []*os.File) error {
	attr, err := visitor.Attr(&v.Request, files)
	if err != nil {
		return err
	}

	attr.Dir, attr.Env = v.Dir, v.Env

	p.mu.Lock() // one that ends at once must not be reaped before it is recorded
	defer p.mu.Unlock()

	if p.ended {
		return errors.New("the program has ended")
	}

	pid, err := forkExec(v.Path, v.Argv, attr, p.program.User, p.joined)
	if err != nil {
		return fmt.Errorf("start %s in %s: %w", v.Path, v.Dir, err)
	}

	root, _ := process.Read(pid)
	root.PID = pid
	exit := make(chan syscall.WaitStatus, 1)
	p.waiting[pid] = exit

	p.visits.mu.Lock()
	p.visits.byID[v.ID] = root
	p.visits.mu.Unlock()

	go p.awaitVisit(v.ID, root, exit)

	return nil
}

// awaitVisit reports the end of a visitor when nothing of it is left.
func (p *initProcess) awaitVisit(id string, root process.Process, exit <-chan syscall.WaitStatus) {
	status := <-exit

	// What cannot be killed now is killed with the space.
	_ = visitor.Kill(id, root)

	p.visits.mu.Lock()
	delete(p.visits.byID, id)
	p.visits.mu.Unlock()

	p.reply(reply{Visitor: id, Ended: true, Status: uint32(status)})
}

// endVisit kills a visitor. Its end is reported when it has come.
func (p *initProcess) endVisit(id string) {
	if root, ok := p.visits.find(id); ok {
		if err := visitor.Kill(id, root); err != nil {
			p.reply(reply{Error: err.Error()})
			return
		}
	}

	p.reply(reply{})
}

// signalVisit sends a signal to the process group of a visitor, which has the number of its first process.
func (p *initProcess) signalVisit(s sent) {
	root, ok := p.visits.find(s.ID)
	if !ok {
		p.reply(reply{})
		return
	}

	if err := unix.Kill(-root.PID, unix.Signal(s.Number)); err != nil && !errors.Is(err, unix.ESRCH) {
		p.reply(reply{Error: err.Error()})
		return
	}

	p.reply(reply{})
}
