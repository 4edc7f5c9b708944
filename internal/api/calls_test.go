package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/tenant"
	"trainyard/test/fuzzing"
)

func TestEveryCallSaysWhatTheContractSays(t *testing.T) {
	t.Parallel()
	ctx, rank := t.Context(), 0
	tests := []struct {
		want string // method, path and query, body
		call func(*Client) error
	}{
		{`POST /api/v1/login {"token":"tyb_x","note":"n"}`, func(c *Client) error {
			_, err := c.Login(ctx, LoginRequest{Token: "tyb_x", Note: "n"})
			return err
		}},
		{`GET /api/v1/whoami `, func(c *Client) error {
			_, err := c.Whoami(ctx)
			return err
		}},
		{`GET /api/v1/info `, func(c *Client) error {
			_, err := c.Info(ctx)
			return err
		}},
		{`POST /api/v1/jobs {"file":"run: x","workdir":"d"}`, func(c *Client) error {
			_, err := c.Submit(ctx, SubmitRequest{File: "run: x", Workdir: "d"}, "key")
			return err
		}},
		{
			`GET /api/v1/jobs?cursor=c&limit=7&name=n&node=b&owner=o&project=p&since=2026-03-01T12%3A00%3A00Z&state=running&state=pending `,
			func(c *Client) error {
				_, err := c.Jobs(ctx, JobFilter{
					States: []job.State{job.Running, job.Pending}, Owner: "o", Project: "p", Name: "n", Node: "b",
					Since: time.Date(2026, 3, 1, 13, 0, 0, 0, time.FixedZone("", 3600)), Page: Page{Cursor: "c", Limit: 7},
				})

				return err
			},
		},
		{`GET /api/v1/curves?job=j1&job=j2&points=9 `, func(c *Client) error {
			_, err := c.Curves(ctx, []id.Job{"j1", "j2"}, 9)
			return err
		}},
		{`GET /api/v1/summary/hours `, func(c *Client) error {
			_, err := c.UseHours(ctx)
			return err
		}},
		{`GET /api/v1/jobs?order=oldest&sort=-cost `, func(c *Client) error {
			_, err := c.Jobs(ctx, JobFilter{Oldest: true, Sort: "-cost"})
			return err
		}},
		{`GET /api/v1/jobs `, func(c *Client) error {
			_, err := c.Jobs(ctx, JobFilter{})
			return err
		}},
		{`GET /api/v1/jobs/j1/file `, func(c *Client) error {
			_, err := c.JobFile(ctx, "j1")
			return err
		}},
		{`GET /api/v1/templates `, func(c *Client) error {
			_, err := c.Templates(ctx)
			return err
		}},
		{`GET /api/v1/jobs/..%2Fnodes `, func(c *Client) error {
			_, err := c.Job(ctx, "../nodes")
			return err
		}},
		{`POST /api/v1/jobs/j1/cancel `, func(c *Client) error {
			_, err := c.CancelJob(ctx, "j1")
			return err
		}},
		{`POST /api/v1/jobs/j1/kill `, func(c *Client) error {
			_, err := c.KillJob(ctx, "j1")
			return err
		}},
		{`GET /api/v1/arrays?active=true&limit=2&name=n&owner=o&project=p `, func(c *Client) error {
			_, err := c.Arrays(ctx, ArrayFilter{Owner: "o", Project: "p", Name: "n", Active: true, Page: Page{Limit: 2}})
			return err
		}},
		{`GET /api/v1/arrays/a1 `, func(c *Client) error {
			_, err := c.Array(ctx, "a1")
			return err
		}},
		{`POST /api/v1/arrays/a1/pause `, func(c *Client) error {
			_, err := c.ChangeArray(ctx, "a1", "pause")
			return err
		}},
		{`POST /api/v1/jobs/j1/pause `, func(c *Client) error {
			_, err := c.PauseJob(ctx, "j1")
			return err
		}},
		{`POST /api/v1/jobs/j1/save `, func(c *Client) error {
			_, err := c.SaveJob(ctx, "j1")
			return err
		}},
		{`POST /api/v1/jobs/j1/resume `, func(c *Client) error {
			_, err := c.ResumeJob(ctx, "j1")
			return err
		}},
		{`GET /api/v1/jobs/j1/logs?cursor=c&grep=a%2B&limit=5&rank=0&run=j1.2&stream=stderr&tail=3 `, func(c *Client) error {
			_, err := c.Logs(
				ctx,
				"j1",
				LogFilter{Run: "j1.2", Rank: &rank, Stream: "stderr", Grep: "a+", Tail: 3, Page: Page{Cursor: "c", Limit: 5}},
			)

			return err
		}},
		{`GET /api/v1/jobs/j1/logs/follow?cursor=c&tail=3 `, func(c *Client) error {
			return c.FollowLogs(ctx, "j1", LogFilter{Tail: 3, Page: Page{Cursor: "c"}}, func(LogItem) error { return nil })
		}},
		{`GET /api/v1/nodes?cursor=c&limit=2 `, func(c *Client) error {
			_, err := c.Nodes(ctx, Page{Cursor: "c", Limit: 2})
			return err
		}},
		{`GET /api/v1/nodes/b `, func(c *Client) error {
			_, err := c.Node(ctx, "b")
			return err
		}},
		{`POST /api/v1/nodes/b/cordon `, func(c *Client) error {
			_, err := c.CordonNode(ctx, "b")
			return err
		}},
		{`POST /api/v1/nodes/b/drain `, func(c *Client) error {
			_, err := c.DrainNode(ctx, "b")
			return err
		}},
		{`POST /api/v1/nodes/b/uncordon `, func(c *Client) error {
			_, err := c.UncordonNode(ctx, "b")
			return err
		}},
		{`DELETE /api/v1/nodes/b `, func(c *Client) error { return c.RemoveNode(ctx, "b", false) }},
		{`DELETE /api/v1/nodes/b?force=true `, func(c *Client) error { return c.RemoveNode(ctx, "b", true) }},
		{`POST /api/v1/nodes/b/accept `, func(c *Client) error {
			_, err := c.AcceptNode(ctx, "b")
			return err
		}},
		{`GET /api/v1/users `, func(c *Client) error {
			_, err := c.Users(ctx, Page{})
			return err
		}},
		{`GET /api/v1/users/u `, func(c *Client) error {
			_, err := c.User(ctx, "u")
			return err
		}},
		{`PUT /api/v1/users/u {"role":"admin"}`, func(c *Client) error {
			_, err := c.PutUser(ctx, "u", UserRequest{Role: tenant.Admin})
			return err
		}},
		{`GET /api/v1/tokens?owner=u `, func(c *Client) error {
			_, err := c.Tokens(ctx, "u", Page{})
			return err
		}},
		{`POST /api/v1/tokens {"kind":"join","uses":2}`, func(c *Client) error {
			_, err := c.CreateToken(ctx, TokenRequest{Kind: tenant.JoinToken, Uses: 2})
			return err
		}},
		{`DELETE /api/v1/tokens/t `, func(c *Client) error { return c.RevokeToken(ctx, "t") }},
		{`GET /api/v1/events?cursor=4&job=j1&kind=k&limit=9&node=b `, func(c *Client) error {
			_, err := c.Events(ctx, EventFilter{Kind: "k", Job: "j1", Node: "b", Page: Page{Cursor: "4", Limit: 9}})
			return err
		}},
		{`GET /api/v1/events/follow?tail=8 `, func(c *Client) error {
			return c.FollowEvents(ctx, EventFilter{Tail: 8}, func(Event, string) error { return nil })
		}},
		{`POST /api/v1/files/missing {"digests":["d"]}`, func(c *Client) error {
			_, err := c.MissingFiles(ctx, []string{"d"})
			return err
		}},
		{
			`PUT /api/v1/files/d content`,
			func(c *Client) error { return c.PutFile(ctx, "d", "gzip", strings.NewReader("content")) },
		},
	}

	for _, tt := range tests {
		t.Run(strings.Fields(tt.want)[0]+" "+strings.Fields(tt.want)[1], func(t *testing.T) {
			t.Parallel()
			var got, key, encoding, bearer string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}

				got = r.Method + " " + r.URL.RequestURI() + " " + string(body)

				key, encoding, bearer = r.Header.Get("Idempotency-Key"), r.Header.Get("Content-Encoding"),
					r.Header.Get("Authorization")

				_, _ = io.WriteString(w, "{}")
			}))
			defer server.Close()

			client := NewClient(server.URL, "ty_secret", nil)
			defer client.Close()

			if err := tt.call(client); err != nil {
				t.Fatal(err)
			}

			if got != tt.want {
				t.Errorf("sent %q, want %q", got, tt.want)
			}

			if bearer != "Bearer ty_secret" {
				t.Errorf("sent the authorization %q", bearer)
			}

			if (key == "key") != (tt.want[:17] == "POST /api/v1/jobs" && strings.Contains(tt.want, "file")) ||
				(encoding == "gzip") != strings.HasPrefix(tt.want, "PUT /api/v1/files") {
				t.Errorf("sent the key %q and the encoding %q", key, encoding)
			}
		})
	}
}

func TestFollowLogsTellsLinesStatesAndTheEnd(t *testing.T) {
	t.Parallel()
	feed := strings.Join([]string{
		": comment\n\n",
		"id: c1\ndata: {\"text\":\"one\",\"rank\":1}\n\n",
		"event: state\ndata: {\"id\":\"j1\",\"state\":\"running\"}\n\n",
		"event: news\ndata: {\"of\":\"a newer server\"}\n\n",
		"event: end\nid: c2\ndata: {\"id\":\"j1\",\"state\":\"succeeded\"}\n\n",
	}, "")

	server := httptest.NewServer(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, feed) }),
	)
	defer server.Close()

	client := NewClient(server.URL, "", nil)
	defer client.Close()

	var got []LogItem

	err := client.FollowLogs(t.Context(), "j1", LogFilter{}, func(i LogItem) error {
		got = append(got, i)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	want := []LogItem{
		{Cursor: "c1", Line: &LogLine{Text: "one", Rank: 1}},
		{Job: &Job{ID: "j1", State: job.Running}},
		{Cursor: "c2", Job: &Job{ID: "j1", State: job.Succeeded}, End: true},
	}

	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	stop := errors.New("stop")
	if err := client.FollowLogs(
		t.Context(),
		"j1",
		LogFilter{},
		func(LogItem) error { return stop },
	); !errors.Is(err, stop) {
		t.Errorf("got %v, want the function's own error", err)
	}

	feed = "data: nonsense\n\n"

	if err := client.FollowLogs(t.Context(), "j1", LogFilter{}, func(LogItem) error { return nil }); err == nil {
		t.Error("nonsense was taken for a line")
	}
}

func TestProblemsComeBackAsTheFaultsTheyWere(t *testing.T) {
	t.Parallel()
	one := Problem{
		Detail: "no",
		Kind:   "conflict",
		Code:   "c",
		Field:  "f",
		Line:   2,
		Column: 3,
		Remedy: "r",
		Status: 409,
		Title:  "Conflict",
	}

	many := Problem{
		Detail: "2 mistakes",
		Kind:   "invalid",
		Errors: []Problem{{Detail: "a", Kind: "invalid", Line: 1}, {Detail: "b", Kind: "invalid"}},
	}

	for name, tt := range map[string]struct {
		status int
		body   any
		check  func(error) error
	}{
		"one": {409, one, func(err error) error {
			want := &fault.Error{Kind: fault.Conflict, Code: "c", Message: "no", Field: "f", Line: 2, Column: 3, Remedy: "r"}
			if diff := cmp.Diff(want, err); diff != "" {
				return errors.New(diff)
			}

			return nil
		}},
		"many": {422, many, func(err error) error {
			var list fault.List
			if !errors.As(err, &list) || len(list) != 2 || list[0].Line != 1 || fault.KindOf(err) != fault.Invalid {
				return fmt.Errorf("got another error: %w", err)
			}

			return nil
		}},
		"no problem at all": {503, "busy", func(err error) error {
			if fault.KindOf(err) != fault.Unavailable {
				return fmt.Errorf("got another error: %w", err)
			}

			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := json.Marshal(tt.body)
			if err != nil {
				t.Fatal(err)
			}

			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = w.Write(text)
			}))
			defer server.Close()

			client := NewClient(server.URL, "", nil)
			defer client.Close()

			_, err = client.Whoami(t.Context())
			if err := tt.check(err); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		close(began)
		<-release
	}))
	defer server.Close()
	defer close(release)

	client := NewClient(server.URL, "", nil)
	defer client.Close()

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- client.FollowEvents(ctx, EventFilter{}, func(Event, string) error { return nil }) }()
	<-began
	cancel()

	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzReadFeed(f *testing.F) {
	f.Add([]byte("id: 1\nevent: state\ndata: {}\n\n: x\n\ndata: a\ndata: b\n\n"))
	f.Add([]byte("data\n\n"))
	f.Add([]byte("data: cut"))
	f.Add(fuzzing.Long([]byte("data: a\n")))

	f.Fuzz(func(t *testing.T, text []byte) {
		defer fuzzing.Bounded(t)()

		err := ReadFeed(bytes.NewReader(text), func(item FeedItem) error {
			if item.Data == nil {
				t.Error("an item without data")
			}

			return nil
		})
		if err != nil {
			t.Errorf("a feed from memory failed: %v", err)
		}
	})
}
