package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/tenant"
)

// textsOf writes lines with their numbers.
func textsOf(page api.LogLines) (texts []string) {
	for _, l := range page.Lines {
		texts = append(texts, fmt.Sprintf("%d %s", l.Number, l.Text))
	}

	return texts
}

func TestOutputIsReadByLineNumbers(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j, run := n.started(c)
	first := output(t, "o:one\ntwo\n", "e:ValueError: three\n", "o:10 %\r20 %\rfour\n", "o:op")
	n.upload(run, 0, 0, first, false)

	look := func(want api.LogLines, texts []string, r api.LogRange) {
		t.Helper()

		got, err := c.LogLines(t.Context(), run, 0, r)
		if err != nil {
			t.Fatal(err)
		}

		if diff := cmp.Diff(texts, textsOf(got)); diff != "" {
			t.Errorf("%+v: lines (-want +got):\n%s", r, diff)
		}

		got.Lines, want.Size, want.Counted = nil, got.Size, got.Size
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", r, diff)
		}
	}

	look(api.LogLines{Total: 5, Next: 3}, []string{"1 one", "2 two"}, api.LogRange{Limit: 2})
	look(api.LogLines{Total: 5}, []string{"4 four", "5 op"}, api.LogRange{From: -2})
	look(api.LogLines{Total: 5, Next: 4}, []string{"4 four", "5 op"}, api.LogRange{Backward: true, Limit: 2})
	look(api.LogLines{Total: 5}, []string{"2 two", "4 four"}, api.LogRange{Grep: "^t?[fw]o"})
	look(api.LogLines{Total: 5}, []string{"3 ValueError: three"}, api.LogRange{Errors: true})

	// A search says where in a line it has found something; matches of nothing are not said.
	found, err := c.LogLines(t.Context(), run, 0, api.LogRange{Grep: "r|e*"})
	if err != nil {
		t.Fatal(err)
	}

	if diff := cmp.Diff([]int{4, 5, 6, 7, 7, 8, 9, 10, 14, 15, 15, 17}, found.Lines[2].Matches); diff != "" {
		t.Errorf("matches in %q (-want +got):\n%s", found.Lines[2].Text, diff)
	}
	look(api.LogLines{Total: 5}, nil, api.LogRange{From: 3, Backward: true, Errors: true})

	n.upload(run, 0, int64(len(first)), output(t, "o:en\n"), true)
	n.ends(run, 0, 0)
	look(api.LogLines{Total: 5, Ended: true}, []string{"5 open"}, api.LogRange{From: 5})

	for _, missing := range []string{"j1.9/0", "j1.1/7", "j2.1/0", "j1.1/x"} {
		got := y.raw(y.http, http.MethodGet, "/api/v1/jobs/"+string(j)+"/logs/"+missing+"/lines",
			y.token("ada", tenant.Researcher, tenant.ScopeRead), "")
		if got.status != http.StatusNotFound || got.p.Code != "run_not_found" {
			t.Errorf("%s: %d %s", missing, got.status, got.p.Code)
		}
	}

	_, err = c.LogLines(t.Context(), run, 0, api.LogRange{Grep: "("})
	wantFault(t, err, fault.Invalid, "bad_pattern")
}

func TestWhoeverWaitsForOutputGetsItAsItComes(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	_, run := n.started(c)
	token := y.token("ada", tenant.Researcher, tenant.ScopeRead)
	first := output(t, "o:one\n")
	n.upload(run, 0, 0, first, false)

	answers := make(chan api.LogLines)
	wait := func(after int64) {
		go func() {
			got := y.raw(y.http, http.MethodGet,
				fmt.Sprintf("/api/v1/jobs/j1/logs/%s/0/lines?from=-1&wait=20&after=%d", run, after), token, "")

			var page api.LogLines
			if err := json.Unmarshal(got.body, &page); err != nil {
				t.Errorf("status %d: %v", got.status, err)
			}

			answers <- page
		}()
	}

	wait(0) // there is more already

	page := <-answers
	if page.Ended || page.Size != int64(len(first)) || page.Lines[0].Text != "one" {
		t.Errorf("got %+v", page)
	}

	// More output, and then the end of the run, end the wait.
	for page.Size == int64(len(first)) {
		wait(page.Size)
		n.upload(run, 0, page.Size, output(t, "o:two\n"), false)
		page = <-answers
	}

	if page.Ended || page.Lines[0].Text != "two" {
		t.Errorf("got %+v", page)
	}

	for !page.Ended {
		wait(page.Size)
		n.upload(run, 0, page.Size, nil, true)
		n.ends(run, 0, 0)
		page = <-answers
	}

	if page.Total != 2 {
		t.Errorf("got %+v", page)
	}
}

func TestOutputIsDownloadedAsText(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	c, n := y.researcher("ada"), y.join("n1")
	n.listen()
	j := n.hasPrinted(c, output(t, "o:one\n", "e:two\n"))
	token := y.token("ada", tenant.Researcher, tenant.ScopeRead)
	path := fmt.Sprintf("/api/v1/jobs/%s/logs/%s.1/0", j, j)

	got := y.raw(y.http, http.MethodGet, path+"?format=text", token, "")
	if got.status != http.StatusOK || string(got.body) != "one\ntwo\n" ||
		got.header.Get("Content-Disposition") != fmt.Sprintf(`attachment; filename="%s.1-0.log"`, j) {
		t.Errorf("got %d %q %v", got.status, got.body, got.header)
	}

	if got := y.raw(y.http, http.MethodGet, path+"?format=html", token, ""); got.p.Code != "bad_format" {
		t.Errorf("another format: %d %s", got.status, got.p.Code)
	}
}
