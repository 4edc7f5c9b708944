package live

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/job"
)

func TestInterruptedLinesOfSeveralRanksStayApart(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &Printer{Out: &out, Ranks: true}
	for _, l := range []api.LogLine{
		{Rank: 0, Stream: "stdout", Text: "half ", Partial: true},
		{Rank: 1, Stream: "stdout", Text: "other"},
		{Rank: 0, Stream: "stdout", Text: "rest"},
	} {
		if err := p.Line("", l); err != nil {
			t.Fatal(err)
		}
	}
	if want := "[rank 0] half \n[rank 1] other\n[rank 0] rest\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// A server gives a cursor with some lines only. Whatever breaks off, every line
// is told once and in the order of its rank.
func TestLinesWithoutACursorAreToldOnce(t *testing.T) {
	t.Parallel()
	type item struct {
		rank, n int
		cursor  string
	}
	feeds := map[string][][]item{ // by cursor, for each call with it
		"": {
			{{0, 1, ""}, {0, 2, ""}, {1, 1, ""}},
			{{0, 1, ""}}, // breaks off earlier than the first time
			{{0, 1, ""}, {0, 2, ""}, {0, 3, "a"}, {1, 1, ""}, {1, 2, ""}},
		},
		"a": {
			{{1, 1, ""}, {1, 2, ""}, {1, 3, "b"}, {0, 4, ""}},
		},
		"b": {
			{{0, 4, ""}, {0, 5, ""}, {1, 4, "c"}},
		},
		"c": {{}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cursor := r.URL.Query().Get("cursor")
		if len(feeds[cursor]) == 0 {
			t.Errorf("one more call with cursor %q", cursor)
			w.WriteHeader(http.StatusNotFound)
			return
		}
		feed := feeds[cursor][0]
		feeds[cursor] = feeds[cursor][1:]
		for _, i := range feed {
			text, err := json.Marshal(api.LogLine{Run: "j1.1", Rank: i.rank, Text: fmt.Sprintf("%d/%d", i.rank, i.n)})
			if err != nil {
				t.Error(err)
			}
			if i.cursor != "" {
				_, _ = fmt.Fprintf(w, "id: %s\n", i.cursor)
			}
			_, _ = fmt.Fprintf(w, "data: %s\n\n", text)
		}
		if cursor == "c" {
			text, err := json.Marshal(api.Job{ID: "j1", State: job.Succeeded})
			if err != nil {
				t.Error(err)
			}
			_, _ = fmt.Fprintf(w, "event: end\ndata: %s\n\n", text)
		}
	}))
	defer server.Close()
	client := api.NewClient(server.URL, "", nil)
	defer client.Close()
	var lines []string
	last, err := Follower{Note: t.Logf}.Job(t.Context(), client, "j1", api.LogFilter{},
		func(l api.LogLine) error { lines = append(lines, l.Text); return nil }, func(api.Job) {})
	if err != nil || last.State != job.Succeeded {
		t.Fatalf("ended with %v, %v", last.State, err)
	}
	for rank, want := range map[string][]string{"0/": {"0/1", "0/2", "0/3", "0/4", "0/5"}, "1/": {"1/1", "1/2", "1/3", "1/4"}} {
		got := slices.DeleteFunc(slices.Clone(lines), func(s string) bool { return !strings.HasPrefix(s, rank) })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rank %s (-want +got):\n%s\nall: %v", rank, diff, lines)
		}
	}
}

func TestWhatTheServerSaysAtTheEndOfAFeedCounts(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "event: error\ndata: {\"detail\":\"the job is gone\",\"kind\":\"not_found\",\"code\":\"job_not_found\"}\n\n")
	}))
	defer server.Close()
	client := api.NewClient(server.URL, "", nil)
	defer client.Close()
	_, err := Follower{Note: t.Logf}.Job(t.Context(), client, "j1", api.LogFilter{}, func(api.LogLine) error { return nil }, func(api.Job) {})
	if fault.KindOf(err) != fault.NotFound {
		t.Errorf("got %v", err)
	}
}

func TestAFeedIsGivenUpWhenNobodyCares(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	calls := 0
	err := Follower{Note: t.Logf}.Persist(ctx, func(func()) (bool, error) {
		if calls++; calls == 2 {
			stop()
		}
		return false, fault.New(fault.Unavailable, "down", "down")
	})
	if err == nil || calls != 2 {
		t.Errorf("got %v after %d calls", err, calls)
	}
}
