package notifier

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"trainyard/internal/job"
	"trainyard/internal/place/ordered"
	"trainyard/internal/server/feed"
	"trainyard/internal/store"
	sqlstore "trainyard/internal/store/sql"
	"trainyard/internal/tenant"
	"trainyard/internal/vault"
	"trainyard/internal/yardmaster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handClock is set by hand.
type handClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.now
}

func (c *handClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.now = c.now.Add(d)
}

// kit is a yard without a server: a real store, a yardmaster, a feed, and a notifier that passes when the test says so.
type kit struct {
	*testing.T
	clock *handClock
	store *faultyStore
	box   *vault.Vault
	mu    sync.Mutex // of the yard
	yard  *yardmaster.Yard
	feed  *feed.Feed
	n     *Notifier
	ctx   context.Context //nolint:containedctx // of the notifier; stop ends it
	stop  context.CancelFunc
}

// faultyStore refuses writes of documents when the test says so.
type faultyStore struct {
	store.Store
	mu        sync.Mutex
	keep      error
	drop      error
	documents int // kept
	pipelines int // times that the jobs of a file were read
}

func (s *faultyStore) Pipeline(ctx context.Context, name string) ([]job.Job, error) {
	s.mu.Lock()
	s.pipelines++
	s.mu.Unlock()

	return s.Store.Pipeline(ctx, name)
}

func (s *faultyStore) set(keep, drop error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.keep, s.drop = keep, drop
}

func (s *faultyStore) Keep(ctx context.Context, docs ...store.Document) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.keep != nil {
		return s.keep
	}

	s.documents += len(docs)

	return s.Store.Keep(ctx, docs...)
}

func (s *faultyStore) Drop(ctx context.Context, kind store.DocumentKind, ids ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.drop != nil {
		return s.drop
	}

	return s.Store.Drop(ctx, kind, ids...)
}

// newKit makes a yard with the user ada, who has a job.
func newKit(t *testing.T) *kit {
	t.Helper()
	dir := t.TempDir()
	k := &kit{T: t, clock: &handClock{now: time.Date(2026, 11, 16, 12, 0, 0, 0, time.UTC)}}
	st, err := sqlstore.Open(t.Context(), filepath.Join(dir, "yard.db"), sqlstore.Options{Clock: k.clock})
	k.must(err)
	t.Cleanup(func() { k.must(st.Close()) })
	_, err = st.Lead(t.Context(), store.Candidate{Server: store.Server{Name: "test"}, Lease: time.Minute})
	k.must(err)
	k.store = &faultyStore{Store: st}
	k.box = &vault.Vault{KMS: vault.OpenKeyFile(filepath.Join(dir, "secrets.key"), k.clock, true)}
	k.yard = yardmaster.New(yardmaster.Defaults(ordered.FIFO{}))
	k.yard.Load(k.clock.Now(), yardmaster.State{})
	k.feed = feed.New(0)
	k.do(yardmaster.PutUser{User: "ada", Role: tenant.Researcher, By: "test"})
	k.begin()
	t.Cleanup(func() { k.end() })

	return k
}

// begin starts a notifier, as a server does that takes the lead.
func (k *kit) begin() {
	k.Helper()
	k.ctx, k.stop = context.WithCancel(context.Background())
	k.n = New(Deps{
		Settings: Settings{Hosts: []string{"127.0.0.1"}},
		Store:    k.store, Feed: k.feed, Vault: k.box, Clock: k.clock, Log: slog.New(slog.DiscardHandler),
		Do: func(_ context.Context, m yardmaster.Message) (any, error) { return k.step(m) },
		Query: func(_ context.Context, fn func(*yardmaster.Yard)) error {
			k.mu.Lock()
			defer k.mu.Unlock()

			fn(k.yard)

			return nil
		},
	})
	k.n.pass(k.ctx)
}

// end stops the notifier without letting it note anything, as kill -9 does.
func (k *kit) end() {
	k.stop()

	for k.n.inFlight > 0 {
		<-k.n.results
		k.n.inFlight--
	}

	k.n.sender.close()
}

// restart lets another server go on: it knows what is in the store and nothing else.
func (k *kit) restart() {
	k.Helper()
	k.end()

	last := k.feed.Last()
	k.feed = feed.New(last)
	k.begin()
}

func (k *kit) must(err error) {
	k.Helper()

	if err != nil {
		k.Fatal(err)
	}
}

func (k *kit) step(m yardmaster.Message) (any, error) {
	k.mu.Lock()
	defer k.mu.Unlock()

	answer, err := k.yard.Step(k.clock.Now(), m)
	b := k.yard.Take()
	if failed := k.store.Commit(context.Background(), b); failed != nil {
		return nil, failed
	}

	k.feed.Add(b)

	return answer, err
}

func (k *kit) do(m yardmaster.Message) any {
	k.Helper()
	answer, err := k.step(m)
	k.must(err)

	return answer
}

// channel adds a webhook of ada.
func (k *kit) channel(name, url string, topics ...tenant.Topic) {
	k.Helper()
	k.channelOf(tenant.Subject{User: "ada"}, name, url, topics...)
}

// channelOf adds a webhook of a user or project.
func (k *kit) channelOf(of tenant.Subject, name, url string, topics ...tenant.Topic) {
	k.Helper()
	c := tenant.Channel{Subject: of, Name: name, Kind: tenant.WebhookChannel, Topics: topics}
	if len(topics) == 0 {
		c.Topics = tenant.Topics()
	}

	text, err := json.Marshal(Credentials{URL: url, Key: testKey})
	k.must(err)
	sealed, err := k.box.Seal(k.Context(), c.Subject, c.SecretName(), string(text))
	k.must(err)
	k.do(yardmaster.PutChannel{Channel: c, Sealed: &sealed, By: "ada"})
}

const testKey = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE="

// happens puts events into the feed, as the yardmaster would; of NoteAccess anything can be said.
func (k *kit) happens(kind string, reasons ...string) {
	k.Helper()

	note := yardmaster.NoteAccess{}
	for _, reason := range reasons {
		note.Calls = append(note.Calls, yardmaster.Access{Kind: kind, Owner: "ada", Reason: reason})
	}

	k.do(note)
}

// settle passes until nothing is under way.
func (k *kit) settle() {
	k.Helper()
	k.n.pass(k.ctx)

	for end := time.Now().Add(5 * time.Minute); k.n.inFlight > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			k.Fatal("a delivery does not end")
		}

		k.n.pass(k.ctx)
	}
}

// events returns the reasons of the events of a kind.
func (k *kit) events(kind string) []string {
	k.Helper()
	list, err := k.store.Events(k.Context(), store.EventFilter{Kind: kind, Limit: 100})
	k.must(err)

	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].Reason
	}

	return out
}

// stored returns how many deliveries the store has.
func (k *kit) stored() int {
	k.Helper()
	docs, err := k.store.Documents(k.Context(), store.DocumentFilter{Kind: store.DeliveryDocument, Limit: 10_000})
	k.must(err)

	return len(docs)
}

// received is one request to a receiver.
type received struct {
	header http.Header
	body   string
}

func (r *received) id() string { return r.header.Get("webhook-id") }

// receiver is an HTTP server that notes what it gets.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	got    []received
	status int
	gate   chan struct{} // requests wait for it to be closed; nil for none
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: http.StatusNoContent}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			t.Error(err)
		}

		r.mu.Lock()
		r.got = append(r.got, received{req.Header, string(body)})
		status, gate := r.status, r.gate
		r.mu.Unlock()

		if gate != nil {
			<-gate
		}

		if status == http.StatusFound {
			w.Header().Set("Location", "http://127.0.0.1:1/elsewhere")
		}

		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)

	return r
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.status = status
}

func (r *receiver) all() []received {
	r.mu.Lock()
	defer r.mu.Unlock()

	return append([]received(nil), r.got...)
}

// wantReasons checks which events a receiver was notified of, by their reasons.
func wantReasons(t *testing.T, r *receiver, want ...string) {
	t.Helper()

	var got []string
	for _, one := range r.all() {
		var body struct {
			Data struct{ Reason string }
		}

		if err := json.Unmarshal([]byte(one.body), &body); err != nil {
			t.Fatal(err)
		}

		got = append(got, body.Data.Reason)
	}

	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("notified of %q, want %q", got, want)
	}
}

var errBroken = errors.New("broken by the test")
