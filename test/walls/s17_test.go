package walls_test

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/tenant"
)

// TestS17_AttemptsAreOnRecord tries tokens and things of others, many times, and looks for it in the audit record.
func TestS17_AttemptsAreOnRecord(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.rootAgent(t, "north")
	alice, mallory := y.user(t, "alice"), y.user(t, "mallory")
	j := alice.submit(t, script("echo mine"))
	alice.ended(t, j)

	stranger := &user{text: mallory.text + "x", yard: y}
	for range 40 {
		a := stranger.call(t, http.MethodGet, "/api/v1/jobs", nil)
		if a.status != http.StatusUnauthorized || a.problem.Remedy == "" {
			t.Fatalf("a wrong token: %s", &a)
		}
	}

	a := mallory.call(t, http.MethodPut, "/api/v1/users/mallory", api.UserRequest{Role: tenant.Admin})
	if a.status != http.StatusForbidden {
		t.Fatalf("mallory makes herself an admin: %s", &a)
	}

	if a := mallory.call(t, http.MethodGet, "/api/v1/jobs/"+string(j)+"/logs", nil); a.status != http.StatusNotFound ||
		strings.Contains(a.text, "mine") {
		t.Fatalf("mallory reads alice's output: %s", &a)
	}

	// A wrong token 40 times is a few entries, not 40, and they add up.
	calls := func(e *api.Event) bool { return e.Actor == "unknown" && e.Address == "127.0.0.1" && e.Count > 0 }
	y.audit(t, "access.refused", calls)

	denied := y.audit(t, "access.refused", func(e *api.Event) bool {
		return e.Actor == "mallory" && strings.Contains(e.Reason, "not_allowed")
	})
	if denied.Token != mallory.token || denied.Address != "127.0.0.1" ||
		!strings.Contains(denied.Reason, "PUT /api/v1/users/") {
		t.Errorf("the record of a refused call: %+v", denied)
	}

	y.audit(t, "access.refused", func(e *api.Event) bool {
		return e.Actor == "mallory" && strings.Contains(e.Reason, "job_not_found")
	})

	// An admin who reads the output of another is on record, and alice sees it.
	y.admin.output(t, j)
	y.audit(t, "access.read", func(e *api.Event) bool {
		return e.Actor == string(y.admin.name) && e.Job == j && e.Owner == "alice"
	})

	page, err := alice.Events(t.Context(), api.EventFilter{Kind: "access.read"})
	must(t, err)

	if len(page.Events) != 1 || page.Events[0].Address != "" || page.Events[0].Token != "" {
		t.Errorf("alice sees of who read her output: %+v", page.Events)
	}

	if page, err := mallory.Events(t.Context(), api.EventFilter{Audit: true, Page: api.Page{Limit: 500}}); err != nil ||
		slices.ContainsFunc(page.Events, func(e api.Event) bool { return e.Owner != "mallory" }) {
		t.Errorf("mallory sees the record of others: %+v, %v", page.Events, err)
	}

	y.checkRecord(t, mallory)
}

// checkRecord looks at what the record says about changes, and exports it.
func (y *yard) checkRecord(t *testing.T, mallory *user) {
	t.Helper()
	_, err := y.admin.PutUser(t.Context(), "mallory", api.UserRequest{Role: tenant.Researcher, Disabled: true})
	must(t, err)

	disabled := y.audit(t, "user.changed", func(e *api.Event) bool { return e.Owner == "mallory" })
	if disabled.From != "researcher" || disabled.To != "researcher, disabled" || disabled.Token == "" ||
		disabled.Address != "127.0.0.1" {
		t.Errorf("the record of a change: %+v", disabled)
	}

	added := y.audit(t, "token.added", func(e *api.Event) bool { return e.Owner == "mallory" })
	if !strings.Contains(added.To, "access, scope submit") || !strings.Contains(added.Reason, string(mallory.token)) {
		t.Errorf("the record of a token: %+v", added)
	}

	// Two exports with a cursor have every entry once.
	cursor := filepath.Join(y.Folder, "cursor")
	first := y.admin.must(t, "events", "--audit", "-o", "jsonl", "--cursor-file", cursor)
	_, err = y.admin.PutUser(t.Context(), "mallory", api.UserRequest{Role: tenant.Researcher})
	must(t, err)

	second := y.admin.must(t, "events", "--audit", "-o", "jsonl", "--cursor-file", cursor)
	seen := map[uint64]bool{}

	for line := range strings.Lines(first + second) {
		var e api.Event
		must(t, json.Unmarshal([]byte(line), &e))

		if seen[e.Seq] || e.Address == "" {
			t.Errorf("exported twice, or without an address: %s", line)
		}

		seen[e.Seq] = true
	}

	all, err := y.admin.Events(t.Context(), api.EventFilter{Audit: true, Page: api.Page{Limit: 500}})
	must(t, err)

	for _, e := range all.Events {
		if !seen[e.Seq] && e.Kind != "access.refused" && e.Kind != "access.read" { // these may have come since
			t.Errorf("not exported: %+v", e)
		}
	}
}
