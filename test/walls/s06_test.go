package walls_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"trainyard/internal/api"
)

// TestS06_SearchesHaveABudget searches output with expressions that multiply the work. The one that is too large is
// refused, the others are done in parts, each of which costs as much as any other search may.
func TestS06_SearchesHaveABudget(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.rootAgent(t, "north")
	mallory := y.user(t, "mallory")
	j := mallory.submit(t, script(`line=$(head -c 999 /dev/zero | tr '\0' x)`, `yes "$line" | head -n 4000`, `echo the end y`))
	mallory.ended(t, j)

	logs := "/api/v1/jobs/" + string(j) + "/logs?limit=500"
	y.await(t, "all of the output is there", func() bool {
		return strings.Contains(mallory.call(t, http.MethodGet, logs+"&tail=1", nil).text, "the end y")
	})

	tooLarge := mallory.call(t, http.MethodGet, logs+"&grep="+url.QueryEscape(`(.*x){300}y`), nil)
	if tooLarge.status != http.StatusUnprocessableEntity || !strings.Contains(tooLarge.problem.Detail, "too expensive") {
		t.Errorf("an expression without bounds: %s", &tooLarge)
	}

	// 4 MB at more than 300 steps a byte are more than one request may take.
	page, err := mallory.Logs(t.Context(), j, api.LogFilter{Grep: `(.*x){60}y`})
	must(t, err)

	if len(page.Lines) != 0 || page.Ended || page.Next == "" {
		t.Errorf("one request searched everything: %d lines, ended %v, next %q", len(page.Lines), page.Ended, page.Next)
	}

	// Who needs it gets to the end, one request after the other, and the command line does so by itself.
	if out := mallory.must(t, "logs", string(j), "--grep", `(x?){20}end y$`); out != "the end y\n" {
		t.Errorf("a search in parts finds %.200q", out)
	}

	// An agent compares output with the expressions of a job: they are bounded likewise.
	_, err = mallory.Submit(t.Context(),
		api.SubmitRequest{File: "run: x\nmetrics: [{match: '(?P<loss>(.*x){300}y)'}]"}, "")
	if err == nil || !strings.Contains(err.Error(), "too expensive") {
		t.Errorf("an expression for metrics without bounds: %v", err)
	}
}
