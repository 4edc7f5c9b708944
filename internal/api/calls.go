package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"trainyard/internal/id"
)

func get[T any](ctx context.Context, c *Client, path string, query url.Values) (T, error) {
	var out T
	err := c.call(ctx, http.MethodGet, path, query, nil, &out)
	return out, err
}

func post[T any](ctx context.Context, c *Client, path string, in any, header ...string) (T, error) {
	var out T
	err := c.call(ctx, http.MethodPost, path, nil, in, &out, header...)
	return out, err
}

// at joins the segments of a path below /api/v1, each escaped.
func at(segments ...string) string {
	path := "/api/v1"
	for _, s := range segments {
		path += "/" + url.PathEscape(s)
	}
	return path
}

// Login exchanges a bootstrap token for an access token.
func (c *Client) Login(ctx context.Context, in LoginRequest) (NewToken, error) {
	return post[NewToken](ctx, c, at("login"), in)
}

// Whoami says who the client's token stands for.
func (c *Client) Whoami(ctx context.Context) (Whoami, error) {
	return get[Whoami](ctx, c, at("whoami"), nil)
}

// Info says what the server is. It needs no token.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return get[Info](ctx, c, at("info"), nil)
}

// Submit hands in a job file. Calls with the same key give the same jobs, so
// that a call whose answer was lost can be made again; "" means no key.
func (c *Client) Submit(ctx context.Context, in SubmitRequest, key string) (SubmitReply, error) {
	var header []string
	if key != "" {
		header = []string{"Idempotency-Key", key}
	}
	return post[SubmitReply](ctx, c, at("jobs"), in, header...)
}

// Jobs returns one page of the jobs that the filter lets through, newest first.
func (c *Client) Jobs(ctx context.Context, f JobFilter) (JobPage, error) {
	return get[JobPage](ctx, c, at("jobs"), f.query())
}

// Job returns all that is known about a job.
func (c *Client) Job(ctx context.Context, j id.Job) (JobDetail, error) {
	return get[JobDetail](ctx, c, at("jobs", string(j)), nil)
}

// CancelJob ends a job: its program is told to stop and has its grace time for it.
func (c *Client) CancelJob(ctx context.Context, j id.Job) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "cancel"), nil)
}

// KillJob ends a job at once.
func (c *Client) KillJob(ctx context.Context, j id.Job) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "kill"), nil)
}

// PauseJob stops a job so that it can be resumed.
func (c *Client) PauseJob(ctx context.Context, j id.Job) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "pause"), nil)
}

// ResumeJob lets a paused job go on.
func (c *Client) ResumeJob(ctx context.Context, j id.Job) (Job, error) {
	return post[Job](ctx, c, at("jobs", string(j), "resume"), nil)
}

// Logs returns one page of a job's output.
func (c *Client) Logs(ctx context.Context, j id.Job, f LogFilter) (LogPage, error) {
	return get[LogPage](ctx, c, at("jobs", string(j), "logs"), f.query())
}

// feedError is the kind of the item by which a server says why it ends a feed.
const feedError = "error"

// feedFault returns the failure that such an item tells of.
func feedFault(item FeedItem) error {
	var p Problem
	if err := json.Unmarshal(item.Data, &p); err != nil {
		return fmt.Errorf("read why the feed ended: %w", err)
	}
	return p.fault()
}

// LogItem is one item of a job's live output: a line, or the job as it is now.
type LogItem struct {
	Cursor string   // to go on after this item; "" where the item moves no cursor
	Line   *LogLine // nil for a change of state
	Job    *Job     // nil for a line
	End    bool     // the job has ended and all lines were sent
}

// FollowLogs calls fn for each line and each change of state of a job from the
// filter's cursor on, until fn fails, the feed breaks off or ctx ends. A feed
// that ends without an item that says End broke off: call again with the last cursor.
func (c *Client) FollowLogs(ctx context.Context, j id.Job, f LogFilter, fn func(LogItem) error) error {
	path := at("jobs", string(j), "logs", "follow")
	return c.follow(ctx, path, f.query(), func(item FeedItem) error {
		out := LogItem{Cursor: item.ID}
		var into any
		switch item.Kind {
		case "":
			out.Line = new(LogLine)
			into = out.Line
		case "state", "end":
			out.Job, out.End = new(Job), item.Kind == "end"
			into = out.Job
		case feedError:
			return feedFault(item)
		default:
			return nil // of a newer server
		}
		if err := json.Unmarshal(item.Data, into); err != nil {
			return fmt.Errorf("read output of %s: %w", j, err)
		}
		return fn(out)
	})
}

// Nodes returns one page of the nodes, by name.
func (c *Client) Nodes(ctx context.Context, p Page) (NodePage, error) {
	return get[NodePage](ctx, c, at("nodes"), p.query())
}

// Node returns one node.
func (c *Client) Node(ctx context.Context, n id.Node) (Node, error) {
	return get[Node](ctx, c, at("nodes", string(n)), nil)
}

// DrainNode lets nothing new onto a node.
func (c *Client) DrainNode(ctx context.Context, n id.Node, in DrainRequest) (Node, error) {
	return post[Node](ctx, c, at("nodes", string(n), "drain"), in)
}

// UndrainNode lets jobs onto a node again.
func (c *Client) UndrainNode(ctx context.Context, n id.Node) (Node, error) {
	return post[Node](ctx, c, at("nodes", string(n), "undrain"), nil)
}

// RemoveNode takes a node out of the yard for good.
func (c *Client) RemoveNode(ctx context.Context, n id.Node) error {
	return c.call(ctx, http.MethodDelete, at("nodes", string(n)), nil, nil, nil)
}

// Users returns one page of the users, by name.
func (c *Client) Users(ctx context.Context, p Page) (UserPage, error) {
	return get[UserPage](ctx, c, at("users"), p.query())
}

// User returns one user.
func (c *Client) User(ctx context.Context, u id.User) (User, error) {
	return get[User](ctx, c, at("users", string(u)), nil)
}

// PutUser makes or changes a user.
func (c *Client) PutUser(ctx context.Context, u id.User, in UserRequest) (User, error) {
	var out User
	err := c.call(ctx, http.MethodPut, at("users", string(u)), nil, in, &out)
	return out, err
}

// Tokens returns one page of the tokens of an owner, or of all that the caller may see.
func (c *Client) Tokens(ctx context.Context, owner id.User, p Page) (TokenPage, error) {
	q := p.query()
	set(q, "owner", string(owner))
	return get[TokenPage](ctx, c, at("tokens"), q)
}

// CreateToken makes a token. Its secret is in the answer and nowhere else.
func (c *Client) CreateToken(ctx context.Context, in TokenRequest) (NewToken, error) {
	return post[NewToken](ctx, c, at("tokens"), in)
}

// RevokeToken makes a token useless from now on.
func (c *Client) RevokeToken(ctx context.Context, t id.Token) error {
	return c.call(ctx, http.MethodDelete, at("tokens", string(t)), nil, nil, nil)
}

// Events returns one page of the feed, oldest first.
func (c *Client) Events(ctx context.Context, f EventFilter) (EventPage, error) {
	return get[EventPage](ctx, c, at("events"), f.query())
}

// FollowEvents calls fn for each entry of the feed from the filter's cursor on,
// with the cursor to go on after it, until fn fails, the feed breaks off or ctx ends.
func (c *Client) FollowEvents(ctx context.Context, f EventFilter, fn func(ev Event, cursor string) error) error {
	return c.follow(ctx, at("events", "follow"), f.query(), func(item FeedItem) error {
		switch item.Kind {
		case "":
		case feedError:
			return feedFault(item)
		default:
			return nil // of a newer server
		}
		var ev Event
		if err := json.Unmarshal(item.Data, &ev); err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		return fn(ev, item.ID)
	})
}

// MissingFiles returns those of the digests whose files the server lacks.
func (c *Client) MissingFiles(ctx context.Context, digests []string) ([]string, error) {
	out, err := post[MissingReply](ctx, c, at("files", "missing"), MissingRequest{Digests: digests})
	return out.Digests, err
}

// PutFile uploads a file by the digest of its content. The body may be
// compressed; then encoding is "gzip", else "".
func (c *Client) PutFile(ctx context.Context, digest, encoding string, body io.Reader) error {
	header := []string{"Content-Type", "application/octet-stream"}
	if encoding != "" {
		header = append(header, "Content-Encoding", encoding)
	}
	// A large file on a slow line may take longer than any limit on a whole call.
	resp, err := c.send(ctx, c.stream, http.MethodPut, at("files", digest), nil, body, header...)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
