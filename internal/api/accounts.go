package api

import (
	"encoding/json"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// User is a person who may use the yard.
type User struct {
	ID       id.User     `json:"id"`
	Role     tenant.Role `json:"role"`
	Disabled bool        `json:"disabled"`
	Created  time.Time   `json:"created"`
	Usage    float64     `json:"usage" doc:"decayed use in GPU-seconds that fair share goes by"`
}

// UserPage is one page of a list of users, by name.
type UserPage struct {
	Users []User `json:"users"`
	Next  string `json:"next,omitempty"`
}

// UserRequest makes or changes a user.
type UserRequest struct {
	Role     tenant.Role `json:"role" enum:"admin,researcher"`
	Disabled bool        `json:"disabled,omitempty"`
}

// Token is a secret that was handed out, without the secret.
type Token struct {
	ID       id.Token         `json:"id"`
	Kind     tenant.TokenKind `json:"kind"`
	Owner    id.User          `json:"owner"`
	Scope    tenant.Scope     `json:"scope,omitempty"`
	Note     string           `json:"note,omitempty"`
	Class    string           `json:"class,omitempty"`
	Pool     string           `json:"pool,omitempty"`
	UsesLeft int              `json:"uses_left,omitempty"`
	Created  time.Time        `json:"created"`
	Expires  time.Time        `json:"expires"`
	Revoked  bool             `json:"revoked"`
	LastUsed *time.Time       `json:"last_used,omitempty" doc:"since the server started"`
}

// TokenPage is one page of a list of tokens.
type TokenPage struct {
	Tokens []Token `json:"tokens"`
	Next   string  `json:"next,omitempty"`
}

// TokenRequest asks for a token: an access token for a person or program, or a join token for machines.
type TokenRequest struct {
	Kind  tenant.TokenKind `json:"kind" enum:"access,join"`
	Owner id.User          `json:"owner,omitempty" doc:"whose; yourself if left out"`
	Scope tenant.Scope     `json:"scope,omitempty" enum:"read,submit,admin" doc:"of an access token; submit if left out"`
	Note  string           `json:"note,omitempty" maxLength:"200"`
	TTL   string           `json:"ttl,omitempty" doc:"how long it is good, as in 30d; access tokens 30d, join tokens 1h if left out"`
	Class string           `json:"class,omitempty" enum:"local,reserved,ondemand" doc:"of nodes that join by it; local if left out"`
	Pool  string           `json:"pool,omitempty" maxLength:"63"`
	Uses  int              `json:"uses,omitempty" minimum:"0" maximum:"10000" doc:"how many machines may join by it; 1 if left out"`
}

// NewToken is a token with its secret, which is shown this once.
type NewToken struct {
	Token
	Text string `json:"text" doc:"the secret; it is not kept and not shown again"`
}

// LoginRequest exchanges a bootstrap token for an access token.
type LoginRequest struct {
	Token string `json:"token" maxLength:"300"`
	Note  string `json:"note,omitempty" maxLength:"200"`
}

// Whoami says who the caller is.
type Whoami struct {
	User    id.User      `json:"user"`
	Role    tenant.Role  `json:"role"`
	Scope   tenant.Scope `json:"scope"`
	Token   id.Token     `json:"token"`
	Expires time.Time    `json:"expires"`
}

// Info says what this server is.
type Info struct {
	Version    string    `json:"version"`
	Capability int       `json:"capability"`
	CAHash     string    `json:"ca_hash"`
	Policy     string    `json:"policy"`
	Store      string    `json:"store" enum:"sqlite,postgres"`
	Started    time.Time `json:"started"`
	Now        time.Time `json:"now"`
}

// Event is one entry of the feed.
type Event struct {
	Seq    uint64    `json:"seq"`
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Actor  string    `json:"actor"`
	Owner  id.User   `json:"owner,omitempty"`
	Job    id.Job    `json:"job,omitempty"`
	Run    id.Run    `json:"run,omitempty"`
	Node   id.Node   `json:"node,omitempty"`
	Lease  id.Lease  `json:"lease,omitempty"`
	From   string    `json:"from,omitempty"`
	To     string    `json:"to,omitempty"`
	Reason string    `json:"reason,omitempty"`
	// Spec is what a submitted job asked for, where the list was asked to say it.
	Spec json.RawMessage `json:"spec,omitempty"`
}

// EventPage is one page of the feed, oldest first.
type EventPage struct {
	Events []Event `json:"events"`
	Next   string  `json:"next" doc:"cursor to go on from, also for the live feed"`
}

// MissingRequest asks which of these files the server lacks.
type MissingRequest struct {
	Digests []string `json:"digests" maxItems:"10000"`
}

// MissingReply lists the files the server lacks.
type MissingReply struct {
	Digests []string `json:"digests"`
}

// Manifest lists the files of a working directory. Its digest, the SHA-256 of
// its canonical JSON, names the directory's content.
type Manifest struct {
	Files []ManifestFile `json:"files"`
}

// ManifestFile is one file of a working directory.
type ManifestFile struct {
	Path   string `json:"path" doc:"relative, with forward slashes, sorted"`
	Mode   uint32 `json:"mode" doc:"permission bits"`
	Size   int64  `json:"size"`
	Digest string `json:"digest,omitempty" doc:"SHA-256 of the content, in hex"`
	Link   string `json:"link,omitempty" doc:"target of a symbolic link"`
}

// Problem is an error as the API answers it (application/problem+json).
type Problem struct {
	Type   string    `json:"type,omitempty"`
	Title  string    `json:"title"`
	Status int       `json:"status"`
	Detail string    `json:"detail" doc:"one sentence for people"`
	Code   string    `json:"code" doc:"stable, for programs"`
	Kind   string    `json:"kind"`
	Field  string    `json:"field,omitempty"`
	Line   int       `json:"line,omitempty"`
	Column int       `json:"column,omitempty"`
	Remedy string    `json:"remedy,omitempty"`
	Errors []Problem `json:"errors,omitempty" doc:"all mistakes, where there are several"`
}

// Error is the sentence for people.
func (p *Problem) Error() string { return p.Detail }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType is that of all error answers.
func (p *Problem) ContentType(string) string { return "application/problem+json" }
