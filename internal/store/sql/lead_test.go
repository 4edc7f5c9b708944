package sql

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/store"
	"trainyard/internal/store/storetest"
	"trainyard/internal/store/storetest/pgtest"
)

// handClock stands still until it is moved. A candidate reads it once each time it has asked who leads.
type handClock struct{ ahead, reads atomic.Int64 }

func (c *handClock) Now() time.Time {
	c.reads.Add(1)

	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(c.ahead.Load()))
}

func (c *handClock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// shortLease is polled often. How long it lasts is up to the hand clock.
const shortLease = 80 * time.Millisecond

// openAtClock opens a store whose candidate counts leases on a clock that the test moves.
func openAtClock(t *testing.T, url string, c *handClock) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, Options{Clock: c, Timeouts: patient})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Close() })

	return s
}

// leading starts a candidacy and returns a channel that gets its outcome.
func leading(ctx context.Context, s *Store, c store.Candidate) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := s.Lead(ctx, c)
		done <- err
	}()

	return done
}

// polled waits until a candidate has asked who leads, and has asked again after that: what was stored before the call,
// it has seen.
func polled(t *testing.T, done <-chan error, c *handClock) {
	t.Helper()
	before := c.reads.Load()
	awaitWhile(t, done, func() bool { return c.reads.Load() >= before+2 })
}

// awaitWhile waits until a condition holds, during which a candidate does not lead.
func awaitWhile(t *testing.T, done <-chan error, holds func() bool) {
	t.Helper()

	for !holds() {
		select {
		case err := <-done:
			t.Fatalf("it leads, or failed: %v", err)
		case <-time.After(shortLease / pollsPerLease):
		}
	}
}

func mustNotLead(t *testing.T, err error) {
	t.Helper()

	if !errors.Is(err, store.ErrNotLeader) {
		t.Errorf("error = %v, want %v", err, store.ErrNotLeader)
	}
}

func TestExpiredLeaseIsTakenAndTheOldTermIsFenced(t *testing.T) {
	t.Parallel()
	url := engines()["postgres"](t)
	old, hand := open(t, url), &handClock{}
	if _, err := old.Lead(t.Context(), candidate("old", shortLease)); err != nil {
		t.Fatal(err)
	}

	if err := old.Commit(t.Context(), batchOf(1)); err != nil {
		t.Fatal(err)
	}

	// As long as it is renewed nobody else leads, however late it is by the candidate's clock.
	next := openAtClock(t, url, hand)
	done := leading(t.Context(), next, candidate("next", shortLease))
	for range 5 {
		if err := old.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}

		polled(t, done, hand)
		hand.advance(shortLease / 2)
		polled(t, done, hand)
	}

	// An expired lease that nobody has taken still commits: it is the term that counts.
	if err := old.Commit(t.Context(), batchOf(2)); err != nil {
		t.Fatal(err)
	}

	hand.advance(2 * shortLease)

	if err := <-done; err != nil {
		t.Fatal(err)
	}

	mustNotLead(t, old.Commit(t.Context(), batchOf(3)))
	mustNotLead(t, old.Keep(t.Context(), store.Document{Kind: store.PastDocument, ID: "j1"}))
	mustNotLead(t, old.Renew(t.Context()))

	if err := next.Commit(t.Context(), batchOf(4)); err != nil {
		t.Fatal(err)
	}

	for _, n := range []uint64{1, 2, 4} {
		if _, err := next.Job(t.Context(), batchOf(n).Jobs[0].ID); err != nil {
			t.Error(err)
		}
	}

	_, err := next.Job(t.Context(), "j3")
	wantKind(t, err, fault.NotFound, "job_not_found")

	// The old one resigns too late to hurt.
	if err := old.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}

	if err := next.Renew(t.Context()); err != nil {
		t.Errorf("renew after another's late resignation: %v", err)
	}
}

func TestOfTwoCandidatesOneLeads(t *testing.T) {
	t.Parallel()
	url := engines()["postgres"](t)

	for round := range 10 {
		first, second := open(t, url), open(t, url)
		ctx, cancel := context.WithCancel(t.Context())
		one := leading(ctx, first, candidate("first", time.Minute))
		two := leading(ctx, second, candidate("second", time.Minute))

		leader, other, waiting := first, second, two
		select {
		case err := <-one:
			if err != nil {
				t.Fatal(err)
			}
		case err := <-two:
			if err != nil {
				t.Fatal(err)
			}

			leader, other, waiting = second, first, one
		}

		if err := leader.Commit(t.Context(), batchOf(uint64(round)+1)); err != nil {
			t.Error(err)
		}

		mustNotLead(t, other.Commit(t.Context(), batchOf(99)))
		cancel()
		wantKind(t, <-waiting, fault.Unavailable, "store_held")

		if err := leader.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestServerThatHasEndedIsSucceededAtOnce(t *testing.T) {
	t.Parallel()
	url := engines()["postgres"](t)
	old := writer(t, url, "machine-1-start-1")
	next := openAtClock(t, url, &handClock{}) // on which no lease ever expires
	c := candidate("machine-1-start-2", time.Minute)
	c.Former = "machine-1-"
	if _, err := next.Lead(t.Context(), c); err != nil {
		t.Fatal(err)
	}

	mustNotLead(t, old.Commit(t.Context(), batchOf(1)))
}

// A commit that takes long, or hangs, must not cost the leader its lease; and nobody may lead before it has ended.
func TestRenewalPassesACommitAndTheNextTermWaitsForIt(t *testing.T) {
	t.Parallel()
	url := engines()["postgres"](t)
	s := writer(t, url, "server")
	tx, err := s.write.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}

	// It stays open for as long as the test needs, also on a busy machine.
	if _, err := tx.ExecContext(t.Context(), `SET LOCAL idle_in_transaction_session_timeout = 0`); err != nil {
		t.Fatal(err)
	}

	if err := s.fence(t.Context(), tx); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()

	if err := s.Renew(ctx); err != nil {
		t.Fatalf("renew while a commit is under way: %v", err)
	}

	next := open(t, url)
	c := candidate("next", shortLease)
	c.Former = "server" // it need not wait for the lease
	done := leading(t.Context(), next, c)
	if waits := awaitLockWait(t, s); !waits {
		t.Error("the next term did not wait for the commit")
	}

	select {
	case err := <-done:
		t.Errorf("another led before the commit had ended (error %v)", err)
	default:
	}

	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}

	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// awaitLockWait waits until some connection to the database waits for a lock.
func awaitLockWait(t *testing.T, s *Store) bool {
	t.Helper()

	for range 30_000 { // five minutes at least
		var waiting int
		err := s.read.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM pg_stat_activity
			WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting)
		if err != nil {
			t.Fatal(err)
		}

		if waiting > 0 {
			return true
		}

		time.Sleep(10 * time.Millisecond)
	}

	return false
}

func TestCandidateSurvivesARestartOfPostgreSQL(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "pg") //nolint:usetesting // the user postgres cannot reach the folder of a test
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server := startIn(t, dir)
	url, err := server.NewDatabase("yard")
	if err != nil {
		t.Fatal(err)
	}

	leader := open(t, url)
	if _, err := leader.Lead(t.Context(), candidate("leader", time.Minute)); err != nil {
		t.Fatal(err)
	}

	hand := &handClock{} // on which no lease ever expires
	standby, failures := openAtClock(t, url, hand), &countingHandler{}
	standby.log = slog.New(failures)
	done := leading(t.Context(), standby, candidate("standby", shortLease))
	polled(t, done, hand)

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}

	if err := leader.Renew(t.Context()); fault.KindOf(err) != fault.Unavailable || errors.Is(err, store.ErrNotLeader) {
		t.Errorf("renew without PostgreSQL: %v, want that it is not available", err)
	}

	awaitWhile(t, done, func() bool { return failures.warnings.Load() > 0 })

	server = startIn(t, dir)

	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})

	// The leader is still the leader.
	var renewed error
	for range postgresLeases + 1 { // each broken connection may fail once
		if renewed = leader.Renew(t.Context()); renewed == nil {
			break
		}
	}

	if renewed != nil {
		t.Fatal(renewed)
	}

	polled(t, done, hand)

	if err := leader.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}

	if err := <-done; err != nil {
		t.Errorf("the standby did not survive: %v", err)
	}
}

// countingHandler counts what is logged as a warning.
type countingHandler struct{ warnings atomic.Int64 }

func (h *countingHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

func (h *countingHandler) Handle(context.Context, slog.Record) error {
	h.warnings.Add(1)
	return nil
}

func (h *countingHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *countingHandler) WithGroup(string) slog.Handler      { return h }

func startIn(t *testing.T, dir string) *pgtest.Server {
	t.Helper()
	server, err := pgtest.Start(dir, false)
	if err != nil {
		storetest.SkipPostgres(t, err)
	}

	return server
}

// proxy stands between a store and PostgreSQL. When it is armed, the next connection on which a transaction is
// committed goes silent for good: nothing passes in either direction any more, and nothing is closed.
type proxy struct {
	listener net.Listener
	socket   string
	deliver  atomic.Bool // whether PostgreSQL still gets the commit
	armed    atomic.Bool
	silenced atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

func startProxy(t *testing.T, database string) (*proxy, string) {
	t.Helper()
	address, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}

	p := &proxy{socket: filepath.Join(address.Query().Get("host"), ".s.PGSQL.5432")}
	p.listener, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	go p.accept()

	t.Cleanup(func() {
		_ = p.listener.Close()
		p.mu.Lock()
		defer p.mu.Unlock()

		for _, c := range p.conns {
			_ = c.Close()
		}
	})

	through := url.URL{
		Scheme: "postgres", User: url.User("postgres"), Host: p.listener.Addr().String(), Path: address.Path,
		RawQuery: "sslmode=disable",
	}

	return p, through.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}

		server, err := net.Dial("unix", p.socket)
		if err != nil {
			_ = client.Close()
			continue
		}

		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()

		var silent atomic.Bool
		go p.pass(client, server, &silent, true)
		go p.pass(server, client, &silent, false)
	}
}

func (p *proxy) pass(from, to net.Conn, silent *atomic.Bool, fromClient bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			if !silent.Load() {
				_ = to.Close()
			}

			return
		}

		if fromClient && bytes.Contains(buffer[:n], []byte("commit\x00")) && p.armed.CompareAndSwap(true, false) {
			silent.Store(true)
			p.silenced.Add(1)

			if !p.deliver.Load() {
				continue
			}
		} else if silent.Load() {
			continue
		}

		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// A commit that is not answered fails after its time; whether it is stored is found out before anything else
// is written, and it is never stored twice.
func TestCommitWithoutAnswerIsFoundOut(t *testing.T) {
	t.Parallel()

	for name, arrives := range map[string]bool{"it arrived": true, "it was lost": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct := engines()["postgres"](t)
			p, through := startProxy(t, direct)
			s, err := Open(t.Context(), through, Options{Timeouts: Timeouts{
				Commit: time.Second, Read: 10 * time.Second, Load: time.Minute,
			}})
			if err != nil {
				t.Fatal(err)
			}

			t.Cleanup(func() { _ = s.Close() })

			if _, err := s.Lead(t.Context(), candidate("server", time.Minute)); err != nil {
				t.Fatal(err)
			}

			first := batchOf(1)
			if err := s.Commit(t.Context(), first); err != nil {
				t.Fatal(err)
			}

			before := s.commits
			p.deliver.Store(arrives)
			p.armed.Store(true)

			second := batchOf(2)
			wantKind(t, s.Commit(t.Context(), second), fault.Unavailable, "store_unavailable")

			if s.doubt == nil || p.silenced.Load() != 1 {
				t.Fatalf("%d connections went silent, in doubt: %v", p.silenced.Load(), s.doubt)
			}

			if err := s.Renew(t.Context()); err != nil {
				t.Errorf("renew after a commit that hung: %v", err)
			}

			// The same batch again, as the loop does: it may need to wait until PostgreSQL has given the transaction up.
			for range 20 {
				if err = s.Commit(t.Context(), second); err == nil {
					break
				}
			}

			if err != nil {
				t.Fatal(err)
			}

			if s.commits != before+1 || s.doubt != nil {
				t.Errorf("%d commits more, want the second one once", s.commits-before)
			}

			if err := s.Commit(t.Context(), batchOf(3)); err != nil {
				t.Fatal(err)
			}

			state, err := open(t, direct).Load(t.Context(), time.Time{})
			if err != nil || len(state.Jobs) != 3 || state.LastEvent != 3 {
				t.Errorf("%d jobs, last event %d, error %v; want 3 of each", len(state.Jobs), state.LastEvent, err)
			}
		})
	}
}

// A commit in doubt that turns out to be stored does not stand for another batch.
func TestDoubtDoesNotSwallowTheNextBatch(t *testing.T) {
	t.Parallel()
	p, through := startProxy(t, engines()["postgres"](t))
	s, err := Open(t.Context(), through, Options{Timeouts: Timeouts{
		Commit: time.Second, Read: time.Minute, Load: time.Minute,
	}})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = s.Close() })

	if _, err := s.Lead(t.Context(), candidate("server", time.Minute)); err != nil {
		t.Fatal(err)
	}

	p.deliver.Store(true)
	p.armed.Store(true)

	if err := s.Commit(t.Context(), batchOf(1)); err == nil {
		t.Fatal("a commit without an answer was acknowledged")
	}

	if err := s.Commit(t.Context(), batchOf(2)); err != nil {
		t.Fatal(err)
	}

	for _, n := range []uint64{1, 2} {
		if _, err := s.Job(t.Context(), batchOf(n).Jobs[0].ID); err != nil {
			t.Error(err)
		}
	}
}
