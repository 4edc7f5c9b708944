package cli

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/cli/exit"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

// printed is the output of a rank: "o:text" at every second before now.
func printed(t *testing.T, frames ...string) []byte {
	t.Helper()

	var out bytes.Buffer
	w := logs.NewWriter(&out, 0)
	for i, f := range frames {
		if err := w.Write(logs.Stream(f[0]), ago(time.Duration(len(frames)-i)*time.Second), []byte(f[2:])); err != nil {
			t.Fatal(err)
		}
	}

	return out.Bytes()
}

// withOutput is a yard whose job j1 has two runs; the second is on two nodes. The first answer about the first rank of
// the second run breaks off.
func withOutput(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	y.answer("GET /api/v1/jobs/j1", api.JobDetail{Job: ended(job.Succeeded, 0), Runs: []api.Run{
		{ID: "j1.2", Epoch: 2, Ranks: make([]api.Rank, 2)}, {ID: "j1.1", Epoch: 1, Ranks: make([]api.Rank, 1)},
	}})

	serve := func(run id.Run, rank int, text []byte, breaksOff bool) {
		var breaks atomic.Bool
		breaks.Store(breaksOff)
		y.mux.HandleFunc("GET /api/v1/jobs/j1/logs/"+string(run)+"/"+strconv.Itoa(rank),
			func(w http.ResponseWriter, r *http.Request) {
				offset, err := strconv.Atoi(r.URL.Query().Get("offset"))
				if err != nil {
					t.Error(err)
				}

				rest := text[offset:]
				w.Header().Set("Content-Length", strconv.Itoa(len(rest)))

				if breaks.CompareAndSwap(true, false) {
					_, _ = w.Write(rest[:len(rest)/2])

					panic(http.ErrAbortHandler)
				}

				_, _ = w.Write(rest)
			})
	}

	serve("j1.1", 0, printed(t, "o:first\n"), false)
	serve("j1.2", 0, printed(t, "o:a\n", "e:err\n", "o:0%", "o:\r50%", "e:more\n", "o:\r100%\n", "o:b\n"), true)

	// The last frame is still on its way to the server.
	torn := printed(t, "o:c\n", "y:remark", "o:half a line")
	serve("j1.2", 1, append(torn, "1772366400000 o 5\nha"...), false)

	return y
}

func TestAllOutputIsReadInOrder(t *testing.T) {
	t.Parallel()
	y := withOutput(t)

	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"all": {
			nil, "[rank 0] first\n[rank 0] a\n[rank 0] err\n[rank 0] more\n[rank 0] 100%\n[rank 0] b\n" +
				"[rank 1] c\n[rank 1] [yard] remark\n[rank 1] half a line",
		},
		"one run":    {[]string{"--run", "1", "--rank", "0"}, "[rank 0] first\n"},
		"one rank":   {[]string{"--run", "2", "--rank", "1", "--stream", "stdout"}, "[rank 1] c\n[rank 1] half a line"},
		"raw":        {[]string{"--run", "2", "--rank", "0", "--raw", "--stream", "stdout"}, "[rank 0] a\n[rank 0] 0%\r50%\r100%\n[rank 0] b\n"},
		"since":      {[]string{"--rank", "0", "--since", "1s"}, "[rank 0] first\n[rank 0] b\n"},
		"until":      {[]string{"--run", "2", "--rank", "0", "--until", "5s"}, "[rank 0] a\n[rank 0] err\n"},
		"since time": {[]string{"--run", "2", "--rank", "all", "--since", "2026-03-01T11:59:59"}, "[rank 0] b\n[rank 1] half a line"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := y
			if name == "all" {
				y = withOutput(t) // whose first answer breaks off
			}

			p := newPerson(t).at(t, y)
			if code := p.types(t.Context(), append([]string{"logs", "j1"}, tt.args...)...); code != exit.OK {
				t.Fatalf("exit code %d: %s", code, p.stderr)
			}

			if diff := cmp.Diff(tt.want, p.stdout.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestLinesAreReadByTheirNumbers(t *testing.T) {
	t.Parallel()
	y := withOutput(t)

	// The server answers with two lines at a time.
	y.mux.HandleFunc("GET /api/v1/jobs/j1/logs/j1.2/1/lines", func(w http.ResponseWriter, r *http.Request) {
		from, err := strconv.ParseInt(r.URL.Query().Get("from"), 10, 64)
		if err != nil {
			t.Error(err)
		}

		limit, err := strconv.ParseInt(r.URL.Query().Get("limit"), 10, 64)
		if err != nil {
			t.Error(err)
		}

		page := api.LogLines{Next: from + min(limit, 2)}
		for n := from; n < page.Next; n++ {
			text := "line " + strconv.FormatInt(n, 10)
			page.Lines = append(page.Lines, api.LogLine{Run: "j1.2", Rank: 1, Stream: "stdout", Text: text, Number: n})
		}

		if err := json.NewEncoder(w).Encode(page); err != nil {
			t.Error(err)
		}
	})

	for lines, want := range map[string]string{
		"5-7": "[rank 1] line 5\n[rank 1] line 6\n[rank 1] line 7\n",
		"7":   "[rank 1] line 7\n",
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), "logs", "j1.2", "--rank", "1", "--lines", lines); code != exit.OK {
			t.Fatalf("exit code %d: %s", code, p.stderr)
		}

		if diff := cmp.Diff(want, p.stdout.String()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", lines, diff)
		}
	}
}

func TestOutputIsReadAsObjects(t *testing.T) {
	t.Parallel()
	p := newPerson(t).at(t, withOutput(t))

	if code := p.types(t.Context(), "logs", "j1.1", "-o", "json"); code != exit.OK {
		t.Fatalf("exit code %d: %s", code, p.stderr)
	}

	var l api.LogLine
	if err := json.Unmarshal([]byte(p.stdout.String()), &l); err != nil {
		t.Fatal(err)
	}

	want := api.LogLine{At: ago(time.Second), Run: "j1.1", Stream: "stdout", Text: "first"}
	if diff := cmp.Diff(want, l); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// newcomer 35: logs --rank 7 of a job with two ranks printed nothing, and succeeded.
func TestARankThatIsNotThereIsAnError(t *testing.T) {
	t.Parallel()
	y := withOutput(t)

	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--rank", "7"}, "rank 7 of j1 not found: it has 2 ranks"},
		{[]string{"--run", "1", "--rank", "1"}, "rank 1 of j1.1 not found: it has 1 rank"},
		{[]string{"--run", "9"}, "job j1 has no run j1.9"},
		{[]string{"--rank", "x"}, "--rank must be an integer of at least 0, or all"},
		{[]string{"--lines", "9-5"}, "--lines must be numbers such as 1200-1300"},
		{[]string{"--lines", "5", "--tail", "3"}, "lines tail"},
		{[]string{"--since", "yesterday"}, "--since: \"yesterday\" is not a time"},
		{[]string{"--since", "1h", "--until", "2h"}, "--since must be before --until"},
	} {
		p := newPerson(t).at(t, y)
		if code := p.types(t.Context(), append([]string{"logs", "j1"}, tt.args...)...); code == exit.OK ||
			!strings.Contains(p.stderr.String(), tt.want) {
			t.Errorf("%v: exit code %d: %s", tt.args, code, p.stderr)
		}
	}
}
