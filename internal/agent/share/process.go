package share

import (
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/share/accounts"
	"trainyard/internal/clock"
)

// process is a connection: one process of a job.
type process struct {
	conn    *net.UnixConn
	tenancy *tenancy
	pid     int    // as this machine sees it
	inner   uint64 // as it sees itself
	hello   bool
	wants   bool
	granted bool
}

// close closes the connection, if whoever reads from it has not done so.
func (p *process) close() error {
	if err := p.conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}

	return nil
}

// send never blocks: a process that does not read for so long that its buffer is full loses its connection. One that
// has ended keeps it until everything that it said is read, which may be that it ran out of memory.
func (p *process) send(r record) {
	raw, err := p.conn.SyscallConn()
	if err != nil {
		return
	}

	var failed error

	err = raw.Write(func(fd uintptr) bool {
		failed = unix.Sendto(int(fd), r.encode(), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
		return true
	})
	if err == nil && (failed == nil || errors.Is(failed, unix.EPIPE) || errors.Is(failed, unix.ECONNRESET)) {
		return
	}

	_ = p.close() // whoever reads from it cleans up
}

// acceptPause is how long to wait after processes could not be let in, because the agent has too many files open.
const acceptPause = 100 * time.Millisecond

// accept lets processes of a job in until its listener is closed.
func (b *Broker) accept(t *tenancy) {
	for {
		conn, err := t.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}

		if err != nil {
			b.opts.Log.Warn("a process of a shared GPU cannot be let in", "job", t.job.ID, "error", err)

			if clock.Wait(b.ctx, acceptPause, nil) == clock.Ended {
				return
			}

			continue
		}

		b.mu.Lock()
		p := &process{conn: conn, tenancy: t, pid: peer(conn)}
		admitted := b.jobs[t.job.ID] == t && !b.opts.Clock.Now().Before(t.away) && len(t.processes) < maxProcesses

		if admitted {
			t.processes[p] = true
			b.tasks.Go(func() { b.serve(p) })
		}
		b.mu.Unlock()

		if !admitted {
			_ = p.close()
		}
	}
}

// peer returns the process id at the other end, 0 if it is unknown.
func peer(conn *net.UnixConn) int {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}

	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})

	return pid
}

// serve reads what a process says until it is gone.
func (b *Broker) serve(p *process) {
	buffer := make([]byte, recordSize+1)
	reset := false

	for {
		n, err := p.conn.Read(buffer)

		// The kernel says first that a process has ended without reading everything, and then what it had said. That
		// may be the reason for its end: that it ran out of memory.
		if errors.Is(err, unix.ECONNRESET) && !reset {
			reset = true
			continue
		}

		if err != nil {
			break
		}

		r, err := decode(buffer[:n])
		if err != nil {
			b.opts.Log.Warn("a process of a shared GPU is not understood", "job", p.tenancy.job.ID, "error", err)
			break
		}

		b.mu.Lock()
		b.handle(p, r)
		b.carryOut()
		b.mu.Unlock()
		b.nudge()
	}

	_ = p.close()

	b.mu.Lock()
	b.gone(p)
	b.carryOut()
	b.mu.Unlock()
	b.nudge()
}

// gone forgets a process, and what it had.
func (b *Broker) gone(p *process) {
	t := p.tenancy
	delete(t.processes, p)
	close(t.changed)
	t.changed = make(chan struct{})

	if b.jobs[t.job.ID] != t || !t.joined {
		return
	}

	now := b.opts.Clock.Now()

	for other := range t.processes {
		if other.hello {
			b.returned(now, p)
			return
		}
	}

	b.core.settle(now)

	if c := b.core.clients[t.job.ID]; c != nil {
		t.past = add(t.past, c.use)
	}

	t.joined = false
	b.core.leave(now, t.job.ID)
}

// returned says to the arbiter that a process has not got the GPU any more, if it was the last one of its job.
func (b *Broker) returned(now time.Time, p *process) {
	p.granted = false
	wants := false

	for other := range p.tenancy.processes {
		if other.granted {
			return
		}

		wants = wants || other.wants
	}

	b.core.release(now, p.tenancy.job.ID)

	if wants {
		b.core.want(now, p.tenancy.job.ID)
	}
}

// handle does what a process asks for.
func (b *Broker) handle(p *process, r record) {
	t := p.tenancy
	if b.jobs[t.job.ID] != t || !p.hello && r.kind != kindHello {
		return
	}

	now := b.opts.Clock.Now()

	switch r.kind {
	case kindHello:
		p.hello = true
		p.inner = r.value[0]

		if !t.joined {
			t.joined = true
			b.core.join(now, t.job.ID, t.job.Terms)
		}

		p.send(b.modeRecord())
	case kindWant:
		b.wanted(now, p)
	case kindRelease, kindIdle:
		if p.granted {
			b.returned(now, p)
		}
	case kindDenied:
		t.denials++

		if b.opts.Denied != nil {
			failed := accounts.Denial{Bytes: r.value[0], Used: r.value[1], Cap: r.value[2]}
			b.opts.Denied(Denial{Denial: failed, Job: t.job.ID, PID: p.pid, Free: r.value[3]})
		}
	case kindDemand:
		b.core.measure(now, t.job.ID, r.value[0], r.value[1], r.value[2])
	case kindGrant, kindRevoke, kindContend, kindMode, kindQuiesce, kindAlive: // ours
	}
}

func (b *Broker) wanted(now time.Time, p *process) {
	if b.core.mode != Token {
		return
	}

	// Processes of one job have the GPU together.
	h := b.core.holder
	if h != nil && h.id == p.tenancy.job.ID && b.core.revoked.IsZero() {
		p.wants, p.granted = false, true
		p.send(record{kind: kindGrant, value: [7]uint64{number(b.core.contended)}})

		return
	}

	p.wants = true

	// While the job gives the GPU back, the wish is kept for when it has.
	if h == nil || h.id != p.tenancy.job.ID {
		b.core.want(now, p.tenancy.job.ID)
	}
}

func number(on bool) uint64 {
	if on {
		return 1
	}

	return 0
}

func (b *Broker) modeRecord() record {
	return record{kind: kindMode, value: [7]uint64{number(b.core.mode == Token), number(b.core.measuring)}}
}

// carryOut does what the arbiter has decided.
func (b *Broker) carryOut() {
	for acts := b.core.take(); len(acts) > 0; acts = b.core.take() {
		for _, a := range acts {
			b.perform(a)
		}
	}
}

func (b *Broker) perform(a act) {
	t := b.jobs[a.job]
	if t == nil && a.job != "" {
		return
	}

	switch a.what {
	case actGrant:
		b.grant(t, a.on)
	case actRevoke:
		t.tell(record{kind: kindRevoke})
	case actContend:
		t.tell(record{kind: kindContend, value: [7]uint64{number(a.on)}})
	case actMode:
		b.opts.Log.Info("mode of a shared GPU", "mode", b.core.mode.String())

		for _, t := range b.jobs {
			for p := range t.processes {
				p.wants, p.granted = false, false
			}
		}

		b.sendMode()
	case actMeasure:
		b.sendMode()
	case actLost, actFound:
		lost := a.what == actLost
		b.opts.Log.Warn("a job on a shared GPU", "job", a.job, "unresponsive", lost)

		if b.opts.Unresponsive != nil {
			b.opts.Unresponsive(a.job, lost)
		}
	}
}

// sendMode tells all processes how the GPU is shared.
func (b *Broker) sendMode() {
	for _, t := range b.jobs {
		for p := range t.processes {
			if p.hello {
				p.send(b.modeRecord())
			}
		}
	}
}

// grant gives the GPU to those processes of a job that want it.
func (b *Broker) grant(t *tenancy, contended bool) {
	found := false

	for p := range t.processes {
		if p.wants {
			found = true
			p.wants, p.granted = false, true
			p.send(record{kind: kindGrant, value: [7]uint64{number(contended)}})
		}
	}

	if !found { // whoever wanted it is gone
		b.core.release(b.opts.Clock.Now(), t.job.ID)
	}
}

// tell sends a record to those processes of a job that have the GPU.
func (t *tenancy) tell(r record) {
	for p := range t.processes {
		if p.granted {
			p.send(r)
		}
	}
}

// sayAlive lets processes that wait know that the broker is there.
func (b *Broker) sayAlive(now time.Time) {
	if now.Sub(b.alive) < aliveEvery {
		return
	}

	b.alive = now

	for _, t := range b.jobs {
		for p := range t.processes {
			if p.wants {
				p.send(record{kind: kindAlive})
			}
		}
	}
}
