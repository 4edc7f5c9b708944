package server

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/auth"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

// badRequest is a request that must fail, with all that the answer says:
// status, code, field and sentence.
type badRequest struct {
	name   string
	method string
	path   string
	as     string // whose token; a key of the tokens, or the text itself
	body   string
	header string
	want   string
}

// says is all that an answer says, mistakes below each other.
func says(p *api.Problem) string {
	text := fmt.Sprintf("%d %s", p.Status, p.Code)
	if p.Field != "" {
		text += " " + p.Field
	}

	if p.Line > 0 {
		text += fmt.Sprintf(" line %d", p.Line)
	}

	text += ": " + p.Detail
	for i := range p.Errors {
		text += "\n" + says(&p.Errors[i])
	}

	return text
}

func digestOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// badYard is a yard with a job, a node, files and tokens of every kind.
func badYard(t *testing.T) (*yard, *node, map[string]string) {
	t.Helper()
	y := newYard(t, withYard(func(c *yardmaster.Config) { c.MaxJobs = 3 }))
	life := func(kind tenant.TokenKind, scope tenant.Scope, d time.Duration) string {
		return y.newToken(tenant.Token{Kind: kind, Owner: "ada", Scope: scope, UsesLeft: 1, Expires: y.clock.Now().Add(d)})
	}
	tokens := map[string]string{
		"ada":       y.token("ada", tenant.Researcher, tenant.ScopeSubmit),
		"minter":    y.token("ada", tenant.Researcher, tenant.ScopeTokens),
		"bob":       y.token("bob", tenant.Researcher, tenant.ScopeSubmit),
		"root":      y.token("root", tenant.Admin, tenant.ScopeAdmin),
		"reader":    life(tenant.AccessToken, tenant.ScopeRead, time.Hour),
		"expired":   life(tenant.AccessToken, tenant.ScopeSubmit, 0),
		"revoked":   life(tenant.AccessToken, tenant.ScopeSubmit, time.Hour),
		"bootstrap": life(tenant.BootstrapToken, "", time.Hour),
		"disabled":  y.token("eve", tenant.Researcher, tenant.ScopeSubmit),
		"used up": y.newToken(
			tenant.Token{Kind: tenant.JoinToken, Owner: "ada", Class: "local", Expires: y.clock.Now().Add(time.Hour)},
		),
		"join": y.joinToken(5),
	}

	revoked, err := auth.Parse(tokens["revoked"])
	y.must(err)
	y.do(yardmaster.RevokeToken{Token: revoked.ID, By: "test"})
	y.do(yardmaster.PutUser{User: "eve", Role: tenant.Researcher, Disabled: true, By: "test"})
	n := y.join("n1")
	n.listen()

	ada := y.client(tokens["ada"])
	if j, _ := n.started(ada); j != "j1" {
		t.Fatalf("the first job is %s", j)
	}

	_, err = ada.Submit(t.Context(), api.SubmitRequest{File: "run: a"}, "used")
	y.must(err)

	for _, content := range []string{"no manifest", `{"files":[{"path":"a","mode":420,"size":1,"digest":"` + digestOf("absent") + `"}]}`} {
		y.must(ada.PutFile(t.Context(), digestOf(content), "", strings.NewReader(content)))
	}

	return y, n, tokens
}

// tokenName is what differs from one time to the next.
var tokenName = regexp.MustCompile(`access token \w+( expired at [-0-9T:Z]+)?`)

func TestBadRequestsOfPeople(t *testing.T) {
	t.Parallel()
	y, _, tokens := badYard(t)
	for _, tt := range badRequestsOfPeople {
		t.Run(tt.name, func(t *testing.T) {
			token, ok := tokens[tt.as]
			if !ok {
				token = tt.as
			}

			var headers []string
			if tt.header != "" {
				headers = strings.Split(tt.header, "|")
			}

			got := y.raw(y.http, tt.method, tt.path, token, tt.body, headers...)
			if text := tokenName.ReplaceAllString(says(&got.p), "access token T"); text != tt.want {
				t.Errorf("got\n%s\nwant\n%s", text, tt.want)
			}
		})
	}
}
