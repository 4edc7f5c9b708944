package agent

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/id"
	"trainyard/internal/job"
)

// Of the probes between the agents of a run on several nodes.
const (
	probeTimeout = 2 * time.Second        // of one connection
	probeRest    = 200 * time.Millisecond // for slower networks, once each rank was reached somehow
	probePause   = 500 * time.Millisecond // before those that did not answer are tried again
	probesAtOnce = 64                     // of those that an agent asks
	// answersAtOnce is how many it answers: the ranks of a large run ask all at once, and at all addresses.
	answersAtOnce = 1024
	maxLine       = 200 // bytes
)

// gangProbe finds out at which addresses the nodes of a run reach each other, while its programs wait for that. It
// answers the agents of the other ranks, and asks them. Addresses such as those of bridges for containers exist on
// every machine, so who answers must know the UID of the run and its own rank.
type gangProbe struct {
	run    id.UID
	rank   int
	cancel context.CancelFunc
	found  atomic.Pointer[job.Probe]
	peers  []int // ports that are being asked
	asking context.CancelFunc
	tasks  sync.WaitGroup
}

// startGangs lets the programs start whose gangs are ready, and finds out for the others how they reach each other.
func (a *Agent) startGangs(ctx context.Context, list []rundir.Status, want assignments) error {
	var errs []error
	waiting := map[key]bool{}

	for i := range list {
		k := key{list[i].Run, list[i].Rank}
		w, assigned := want.ranks[k]

		if !assigned || !w.Launch.Barrier || list[i].State != job.RunPreparing || w.Stop != job.StopNone ||
			!sameRun(&w, list[i].UID, want.incarnation) {
			continue
		}

		if w.Start == nil {
			waiting[k] = true
			a.probeGang(ctx, k, &w)

			continue
		}

		a.endGangProbe(k) // before the program may want its port

		if list[i].Ready {
			start := rundir.GangStart{GangStart: *w.Start}
			if k.rank < len(start.Nodes) {
				start.Interface = interfaceOf(start.Nodes[k.rank])
			}

			errs = append(errs, a.rt.StartGang(k.run, k.rank, start))
		}
	}

	for k := range a.probes {
		if !waiting[k] {
			a.endGangProbe(k)
		}
	}

	return errors.Join(errs...)
}

// probeGang begins to answer the other ranks of a run, and asks those whose ports are known.
func (a *Agent) probeGang(ctx context.Context, k key, w *api.Assignment) {
	p := a.probes[k]
	if p == nil {
		p = &gangProbe{run: w.Launch.UID, rank: k.rank}
		ctx, p.cancel = context.WithCancel(ctx) //nolint:gosec // endGangProbe calls it
		p.listen(ctx)
		a.probes[k] = p
	}

	if len(w.Peers) != len(w.Launch.Addresses) || slices.Equal(p.peers, w.Peers) {
		return
	}

	if p.asking != nil {
		p.asking()
	}

	ctx, p.asking = context.WithCancel(ctx) //nolint:gosec // endGangProbe calls it
	p.peers = w.Peers
	addresses := w.Launch.Addresses
	p.tasks.Go(func() { p.ask(ctx, addresses, slices.Clone(w.Peers), func() { notify(a.reconcileSoon) }) })
}

// endGangProbe stops to answer and to ask, and returns when the port is free.
func (a *Agent) endGangProbe(k key) {
	p := a.probes[k]
	if p == nil {
		return
	}

	if p.asking != nil {
		p.asking()
	}

	p.cancel()
	p.tasks.Wait()
	delete(a.probes, k)
}

// endGangProbes ends all of them.
func (a *Agent) endGangProbes() {
	for k := range a.probes {
		a.endGangProbe(k)
	}
}

// listen answers the other ranks at a port that is free. The libraries for training use such ports, too, so that a
// firewall that lets probes pass lets them pass.
func (p *gangProbe) listen(ctx context.Context) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", ":0")
	if err != nil {
		p.found.Store(&job.Probe{Port: -1})
		return
	}

	port := -1
	if at, ok := listener.Addr().(*net.TCPAddr); ok {
		port = at.Port
	}

	p.found.Store(&job.Probe{Port: port})
	context.AfterFunc(ctx, func() { _ = listener.Close() }) // nobody waits for it

	p.tasks.Go(func() {
		slots := make(chan struct{}, answersAtOnce)

		for {
			conn, err := listener.Accept()
			if err != nil {
				if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
					return
				}

				clock.Sleep(ctx, probePause)

				continue
			}

			select {
			case slots <- struct{}{}:
				p.tasks.Go(func() {
					p.answer(conn)
					<-slots
				})
			default:
				_ = conn.Close() // whoever it was asks again
			}
		}
	})
}

// question is how a rank is asked, and reply what it answers. Only who knows the run can do either, and the UID of the
// run is not seen on the network.
func (p *gangProbe) question(rank int) string { return p.line("question", rank) }

func (p *gangProbe) reply(rank int) string { return p.line("reply", rank) }

func (p *gangProbe) line(word string, rank int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d", word, p.run, rank))

	return "trainyard " + hex.EncodeToString(sum[:]) + "\n"
}

// answer answers whoever knows the run.
func (p *gangProbe) answer(conn net.Conn) {
	defer func() { _ = conn.Close() }() // the other side has the answer, or asks again

	if err := conn.SetDeadline(clock.Deadline(probeTimeout)); err != nil {
		return
	}

	line, err := bufio.NewReader(io.LimitReader(conn, maxLine)).ReadString('\n')
	if err != nil || line != p.question(p.rank) {
		return
	}

	_, _ = io.WriteString(conn, p.reply(p.rank)) // who does not get it asks again
}

// ask asks the other ranks at all their addresses until each has answered at one, and reports what is new after
// each round.
func (p *gangProbe) ask(ctx context.Context, addresses [][]string, ports []int, report func()) {
	reached := make([]uint64, len(addresses))

	for ctx.Err() == nil {
		p.askOnce(ctx, addresses, ports, reached)

		if ctx.Err() != nil {
			return
		}

		if last := p.found.Load(); !slices.Equal(last.Reached, reached) {
			p.found.Store(&job.Probe{Port: last.Port, Reached: slices.Clone(reached)})
			report()
		}

		if p.complete(ports, reached) {
			return
		}

		clock.Sleep(ctx, probePause+rand.N(probePause)) // not all ranks at the same moment
	}
}

// complete reports whether each rank that answers was reached.
func (p *gangProbe) complete(ports []int, reached []uint64) bool {
	for rank, port := range ports {
		if rank != p.rank && port > 0 && reached[rank] == 0 {
			return false
		}
	}

	return true
}

// askOnce asks all ranks that have not answered yet at all their addresses. Once each has answered at one it gives the
// other addresses a moment.
func (p *gangProbe) askOnce(ctx context.Context, addresses [][]string, ports []int, reached []uint64) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	var tasks sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, probesAtOnce)
	done := make(chan struct{})
	enough := make(chan struct{})
	once := sync.OnceFunc(func() { close(enough) })

	for rank := range addresses {
		if rank == p.rank || ports[rank] <= 0 || reached[rank] != 0 {
			continue
		}

		for i, address := range addresses[rank][:min(len(addresses[rank]), job.MaxAddresses)] {
			tasks.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()

				if !p.reaches(ctx, net.JoinHostPort(address, strconv.Itoa(ports[rank])), rank) {
					return
				}

				mu.Lock()
				defer mu.Unlock()

				reached[rank] |= 1 << i
				if p.complete(ports, reached) {
					once()
				}
			})
		}
	}

	go func() {
		tasks.Wait()
		close(done)
	}()

	select {
	case <-enough:
		pause(ctx, probeRest, done)
	case <-done:
	}

	cancel()
	<-done
}

// reaches reports whether a rank answers at an address.
func (p *gangProbe) reaches(ctx context.Context, address string, rank int) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()

	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}

	defer func() { _ = conn.Close() }()                         // it was only a question
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // ends what waits for the answer
	defer stop()

	if _, err := io.WriteString(conn, p.question(rank)); err != nil {
		return false
	}

	line, err := bufio.NewReader(io.LimitReader(conn, maxLine)).ReadString('\n')

	return err == nil && line == p.reply(rank)
}

// interfaceOf returns the name of the network interface that has an address; "" if there is none.
func interfaceOf(address string) string {
	interfaces, err := net.Interfaces()
	if err != nil {
		return ""
	}

	for _, i := range interfaces {
		addresses, err := i.Addrs()
		if err != nil {
			continue
		}

		for _, a := range addresses {
			if own, _, _ := strings.Cut(a.String(), "/"); own == address {
				return i.Name
			}
		}
	}

	return ""
}
