package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"trainyard/internal/clock"
	"trainyard/internal/fault"
)

// A cloud that takes a spot instance back gives notice of it on the instance itself. The agent looks for it and tells
// the server how much time is left; the server decides what becomes of the runs.

const (
	// spotLookEvery is how often the agent looks for a notice. The shortest one is 30 seconds.
	spotLookEvery = 2 * time.Second
	// spotLookTimeout bounds one look.
	spotLookTimeout = 5 * time.Second
	// spotAnswerLimit bounds the answer of a metadata service, in bytes.
	spotAnswerLimit = 1 << 20
	// gcpNotice is the time between notice and end at Google, which does not name a time.
	gcpNotice = 30 * time.Second
	// imdsTokenTTL is how long a session with Amazon's metadata service lasts, in seconds.
	imdsTokenTTL = "300"
)

// spotLook returns when this machine will be taken back, zero if no notice was given.
type spotLook func(ctx context.Context, now time.Time) (time.Time, error)

// metadata is a cloud's metadata service.
type metadata struct {
	address string
	client  *http.Client
	name    string // of this machine, once Azure has said it
}

// parseSpotNotice returns how to look for notices: KIND, or KIND=ADDRESS for another address than the cloud's own; nil
// if there are none.
func parseSpotNotice(text string) (spotLook, error) {
	kind, address, _ := strings.Cut(text, "=")
	m := &metadata{address: strings.TrimSuffix(address, "/"), client: &http.Client{
		Transport: &http.Transport{Proxy: nil}, // the service is on the machine's own link
		Timeout:   spotLookTimeout,
	}}

	look, own := spotLook(nil), ""

	switch kind {
	case "":
	case "aws":
		look, own = m.lookAWS, "http://169.254.169.254"
	case "gcp":
		look, own = m.lookGCP, "http://metadata.google.internal"
	case "azure":
		look, own = m.lookAzure, "http://169.254.169.254"
	case "file":
		look = m.lookFile
	}

	if look == nil && text != "" || kind == "file" && address == "" {
		return nil, fault.New(fault.Invalid, "spot_notice", "must be aws, gcp, azure or file=PATH, got %q", text).
			WithField("spot-notice")
	}

	if m.address == "" {
		m.address = own
	}

	return look, nil
}

// instanceAction is the notice as Amazon writes it.
type instanceAction struct {
	Time time.Time `json:"time"`
}

// lookAWS reads the notice of Amazon: the answer is "not found" until one is given.
func (m *metadata) lookAWS(ctx context.Context, _ time.Time) (time.Time, error) {
	token, _, err := m.ask(ctx, http.MethodPut, "/latest/api/token", "X-Aws-Ec2-Metadata-Token-Ttl-Seconds", imdsTokenTTL)
	if err != nil {
		return time.Time{}, err
	}

	text, found, err := m.ask(ctx, http.MethodGet, "/latest/meta-data/spot/instance-action", "X-Aws-Ec2-Metadata-Token",
		string(token))
	if err != nil || !found {
		return time.Time{}, err
	}

	return parseAction(text)
}

// lookFile reads a notice in the form of Amazon's from a file: for other clouds, from which a hook writes it.
func (m *metadata) lookFile(context.Context, time.Time) (time.Time, error) {
	text, err := os.ReadFile(m.address)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}

	if err != nil {
		return time.Time{}, fmt.Errorf("read the spot notice: %w", err)
	}

	return parseAction(text)
}

func parseAction(text []byte) (time.Time, error) {
	var action instanceAction
	if err := json.Unmarshal(text, &action); err != nil {
		return time.Time{}, fmt.Errorf("read the spot notice: %w", err)
	}

	if action.Time.IsZero() {
		return time.Time{}, errors.New("read the spot notice: it has no time")
	}

	return action.Time, nil
}

// lookGCP reads the notice of Google: TRUE once it is given.
func (m *metadata) lookGCP(ctx context.Context, now time.Time) (time.Time, error) {
	text, found, err := m.ask(ctx, http.MethodGet, "/computeMetadata/v1/instance/preempted", "Metadata-Flavor", "Google")
	if err != nil || !found || strings.TrimSpace(string(text)) != "TRUE" {
		return time.Time{}, err
	}

	return now.Add(gcpNotice), nil
}

// scheduledEvents are the events of a set of machines as Azure writes them.
type scheduledEvents struct {
	Events []struct {
		EventType string
		Resources []string // names of machines
		NotBefore string
	}
}

// lookAzure reads the notice of Azure, which is among the events of all machines of a set.
func (m *metadata) lookAzure(ctx context.Context, now time.Time) (time.Time, error) {
	text, _, err := m.ask(ctx, http.MethodGet, "/metadata/scheduledevents?api-version=2020-07-01", "Metadata", "true")
	if err != nil {
		return time.Time{}, err
	}

	var all scheduledEvents
	if err := json.Unmarshal(text, &all); err != nil {
		return time.Time{}, fmt.Errorf("read the scheduled events: %w", err)
	}

	for _, e := range all.Events {
		if e.EventType != "Preempt" {
			continue
		}

		if err := m.learnName(ctx); err != nil {
			return time.Time{}, err
		}

		if !slices.Contains(e.Resources, m.name) {
			continue
		}

		if e.NotBefore == "" {
			return now, nil // it is under way
		}

		at, err := http.ParseTime(e.NotBefore)
		if err != nil {
			return time.Time{}, fmt.Errorf("read the scheduled events: %w", err)
		}

		return at, nil
	}

	return time.Time{}, nil
}

// learnName asks Azure for the name of this machine.
func (m *metadata) learnName(ctx context.Context) error {
	if m.name != "" {
		return nil
	}

	text, _, err := m.ask(ctx, http.MethodGet, "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
		"Metadata", "true")
	m.name = string(text)

	return err
}

// ask makes a request with one header, and reports whether what it asks for exists.
func (m *metadata) ask(ctx context.Context, method, path, header, value string) (text []byte, found bool, err error) {
	req, err := http.NewRequestWithContext(ctx, method, m.address+path, nil)
	if err != nil {
		return nil, false, fmt.Errorf("ask the metadata service: %w", err)
	}

	req.Header.Set(header, value)

	res, err := m.client.Do(req)
	if err != nil {
		return nil, false, fmt.Errorf("ask the metadata service: %w", err)
	}

	text, err = io.ReadAll(io.LimitReader(res.Body, spotAnswerLimit))
	err = errors.Join(err, res.Body.Close())

	switch {
	case err != nil:
		return nil, false, fmt.Errorf("ask the metadata service: %w", err)
	case res.StatusCode == http.StatusNotFound && method == http.MethodGet:
		return nil, false, nil
	case res.StatusCode != http.StatusOK:
		return nil, false, fmt.Errorf("ask the metadata service: %s %s: %s", method, path, res.Status)
	}

	return text, true, nil
}

// spotLoop looks for the notice that this machine is taken back.
func (a *Agent) spotLoop(ctx context.Context) {
	for a.spotLook != nil {
		at, err := a.spotLook(ctx, a.clk.Now())
		if ctx.Err() != nil {
			return
		}

		a.noteProblem("spot notice", err)

		if err == nil {
			a.noteReclaim(at)
		}

		if !clock.Sleep(ctx, spotLookEvery) {
			return
		}
	}
}

// noteReclaim keeps when this machine is taken back, and reports it at once. The first time counts, because not every
// cloud names one.
func (a *Agent) noteReclaim(at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if at.IsZero() == a.reclaimAt.IsZero() {
		return
	}

	a.reclaimAt = at
	if !at.IsZero() {
		a.log.Warn("the cloud takes this machine back", "at", at)
	}

	notify(a.reportSoon)
}

// reclaimLeft returns how many seconds are left until this machine is taken back, nil if no notice was given. The
// caller holds mu.
func (a *Agent) reclaimLeft() *int64 {
	if a.reclaimAt.IsZero() {
		return nil
	}

	left := int64(max(a.reclaimAt.Sub(a.clk.Now()), 0) / time.Second)

	return &left
}
