package follow

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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

func TestOutputOnATerminalDoesNotActOnIt(t *testing.T) {
	t.Parallel()
	line := api.LogLine{Run: "j1.1", Stream: "stdout", Text: "\x1b[32mok\x1b[0m \x1b]0;owned\x07 \u009b2J"}

	for name, tt := range map[string]struct {
		printer *Printer
		want    string
	}{
		"a terminal": {&Printer{Terminal: true}, "\x1b[32mok\x1b[0m ^[]0;owned^G \\x9b2J\n"},
		"a pipe":     {&Printer{}, line.Text + "\n"},
		"objects on a terminal": {
			&Printer{Terminal: true, JSON: true},
			`"text":"\u001b[32mok\u001b[0m \u001b]0;owned\u0007 \u009b2J"`,
		},
	} {
		var out strings.Builder
		tt.printer.Out = &out
		if err := tt.printer.Line("", line); err != nil {
			t.Fatal(err)
		}

		if !strings.Contains(out.String(), tt.want) {
			t.Errorf("%s: got %q, want %q", name, out.String(), tt.want)
		}
	}
}

// Every line has a cursor. Wherever the feed breaks off, each line is told once and in order.
func TestAFeedThatBreaksOffIsTakenUpAfterTheLastLine(t *testing.T) {
	t.Parallel()
	const all, each = 7, 2 // lines in all, and before the feed breaks off
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := 0
		if cursor := r.URL.Query().Get("cursor"); cursor != "" {
			if _, err := fmt.Sscan(cursor, &from); err != nil {
				t.Error(err)
			}
		}

		for n := from + 1; n <= min(from+each, all); n++ {
			text, err := json.Marshal(api.LogLine{Run: "j1.1", Text: fmt.Sprint(n)})
			if err != nil {
				t.Error(err)
			}

			_, _ = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", n, text)
		}

		if from+each >= all {
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
		func(l api.LogLine) error {
			lines = append(lines, l.Text)
			return nil
		}, func(api.Job) {})

	if err != nil || last.State != job.Succeeded {
		t.Fatalf("ended with %v, %v", last.State, err)
	}

	if diff := cmp.Diff([]string{"1", "2", "3", "4", "5", "6", "7"}, lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

// A short job can have ended before its last line has arrived.
func TestTheEndOfAJobIsSaidAfterItsLastLine(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, "event: state\ndata: {\"id\":\"j1\",\"state\":\"running\"}\n\n"+
			"event: state\ndata: {\"id\":\"j1\",\"state\":\"succeeded\"}\n\n"+
			"id: 1\ndata: {\"run\":\"j1.1\",\"text\":\"the last line\"}\n\n"+
			"event: end\ndata: {\"id\":\"j1\",\"state\":\"succeeded\"}\n\n")
	}))
	defer server.Close()

	client := api.NewClient(server.URL, "", nil)
	defer client.Close()

	var said []string
	_, err := Follower{Note: t.Logf}.Job(t.Context(), client, "j1", api.LogFilter{},
		func(l api.LogLine) error {
			said = append(said, l.Text)
			return nil
		}, func(j api.Job) { said = append(said, string(j.State)) })
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]string{"running", "the last line", "succeeded"}, said); diff != "" {
		t.Errorf("said (-want +got):\n%s", diff)
	}
}

func TestWhatTheServerSaysAtTheEndOfAFeedCounts(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(
			w,
			"event: error\ndata: {\"detail\":\"the job is gone\",\"kind\":\"not_found\",\"code\":\"job_not_found\"}\n\n",
		)
	}))
	defer server.Close()

	client := api.NewClient(server.URL, "", nil)
	defer client.Close()

	_, err := Follower{
		Note: t.Logf,
	}.Job(
		t.Context(),
		client,
		"j1",
		api.LogFilter{},
		func(api.LogLine) error { return nil },
		func(api.Job) {},
	)

	if fault.KindOf(err) != fault.NotFound {
		t.Errorf("got %v", err)
	}
}

func TestAFeedIsGivenUpWhenNobodyCares(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	calls := 0
	err := Follower{Note: t.Logf}.Persist(ctx, func(func()) (bool, error) {
		calls++
		if calls == 2 {
			stop()
		}

		return false, fault.New(fault.Unavailable, "down", "down")
	})

	if err == nil || calls != 2 {
		t.Errorf("got %v after %d calls", err, calls)
	}
}

// newcomer 10: a progress bar was one line of 58 KB in a pipe.
func TestAProgressBarIsOneLineInAPipe(t *testing.T) {
	t.Parallel()
	piece := func(text string) api.LogLine { return api.LogLine{Stream: "stderr", Text: text, Partial: true} }
	whole := func(text string) api.LogLine { return api.LogLine{Stream: "stderr", Text: text} }

	for name, tt := range map[string]struct {
		lines []api.LogLine
		want  string
	}{
		"in one piece":               {[]api.LogLine{whole(" 0%\r50%\r100%")}, "100%\n"},
		"that ends with a return":    {[]api.LogLine{whole("50%\r100%\r")}, "100%\n"},
		"in pieces":                  {[]api.LogLine{piece(" 0%"), piece("\r50%"), piece("\r99"), whole("%")}, "99%\n"},
		"with returns at ends":       {[]api.LogLine{piece(" 0%\r"), piece("50%\r"), whole("100%\r")}, "100%\n"},
		"that has not ended":         {[]api.LogLine{piece("\r50%"), piece("\r60%")}, "60%"},
		"collapsed by the server":    {[]api.LogLine{piece("\r50%"), whole("\r100%")}, "100%\n"},
		"a line with a Windows end":  {[]api.LogLine{whole("text\r")}, "text\r\n"},
		"a line in pieces":           {[]api.LogLine{piece("Loading"), piece("..."), whole(" done")}, "Loading... done\n"},
		"a line longer than any bar": {[]api.LogLine{piece(strings.Repeat("x", 70_000)), whole("y")}, strings.Repeat("x", 70_000) + "y\n"},
		"beside another stream": {
			[]api.LogLine{piece("\r50%"), {Stream: "stdout", Text: "saved"}, whole("\r100%")}, "saved\n100%\n",
		},
	} {
		var out strings.Builder
		p := &Printer{Out: &out, Collapse: true}

		for _, l := range tt.lines {
			if err := p.Line("", l); err != nil {
				t.Fatal(err)
			}
		}

		if err := p.Close(); err != nil {
			t.Fatal(err)
		}

		if out.String() != tt.want {
			t.Errorf("%s: %.100q, want %.100q", name, out.String(), tt.want)
		}
	}
}

// Lines that were skipped may have ended one that had begun, and begun another.
func TestANoteOnSkippedLinesStandsAlone(t *testing.T) {
	t.Parallel()
	lines := []api.LogLine{
		{Stream: "stdout", Text: "half", Partial: true},
		{Stream: "yard", Text: "… 12,345 lines skipped: read them with trainyard logs j7", Skipped: 12345},
		{Stream: "stdout", Text: "another"},
	}

	for _, collapse := range []bool{false, true} {
		var out strings.Builder
		p := &Printer{Out: &out, Collapse: collapse}

		for _, l := range lines {
			if err := p.Line("", l); err != nil {
				t.Fatal(err)
			}
		}

		if err := p.Close(); err != nil {
			t.Fatal(err)
		}

		if want := "half\n[yard] … 12,345 lines skipped: read them with trainyard logs j7\nanother\n"; out.String() != want {
			t.Errorf("got %q, want %q", out.String(), want)
		}
	}

	var out strings.Builder
	if err := (&Printer{Out: &out, JSON: true}).Line("", lines[1]); err != nil || !strings.Contains(out.String(), `"skipped":12345`) {
		t.Errorf("as an object: %s (%v)", out.String(), err)
	}
}
