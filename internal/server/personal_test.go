package server

import (
	"errors"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/tenant"
)

// A yard whose jobs run under the account of the person who started it lets nobody else in.
func TestAPersonalYardRefusesOthers(t *testing.T) {
	t.Parallel()
	y := newYard(t, withConfig(func(c *Config) { c.Personal = true }))
	root := y.admin()
	early := y.researcher("early") // from before it was personal

	codeOf := func(err error) string {
		var f *fault.Error
		if errors.As(err, &f) {
			return f.Code
		}

		return ""
	}

	_, err := root.PutUser(t.Context(), "ada", api.UserRequest{Role: tenant.Researcher})
	if codeOf(err) != "personal_yard" || !strings.Contains(err.Error(), "ada cannot use this yard") {
		t.Errorf("a second user: %v", err)
	}

	_, err = root.CreateToken(t.Context(), api.TokenRequest{Kind: tenant.AccessToken, Owner: "early"})
	if codeOf(err) != "personal_yard" {
		t.Errorf("a token for another user: %v", err)
	}

	for what, call := range map[string]func() error{
		"own token": func() error {
			_, err := root.CreateToken(t.Context(), api.TokenRequest{Kind: tenant.AccessToken})
			return err
		},
		"join token": func() error {
			_, err := root.CreateToken(t.Context(), api.TokenRequest{Kind: tenant.JoinToken})
			return err
		},
		"disable": func() error {
			_, err := root.PutUser(t.Context(), "early", api.UserRequest{Role: tenant.Researcher, Disabled: true})
			return err
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}

	if _, err := root.PutUser(t.Context(), "early",
		api.UserRequest{Role: tenant.Researcher}); codeOf(err) != "personal_yard" {
		t.Errorf("enabled again: %v", err)
	}

	if _, err := early.Whoami(t.Context()); err == nil {
		t.Error("a user who was disabled is let in")
	}
}

// A node whose agent does not say that it isolates users, as that of an earlier version, runs jobs of one user at
// a time.
func TestANodeThatDoesNotIsolateUsersIsShownAndDedicated(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, ben, n := y.researcher("ada"), y.researcher("ben"), y.join("old")
	n.listen()

	earlier := someInventory()
	earlier.MixUsers = false
	_, err := n.Report(t.Context(), api.Report{Capability: 1, Boot: "b", Seq: 1, Inventory: &earlier})
	y.must(err)

	hers := y.submit(ada, "run: a")[0].ID
	run := n.awaitRun(hers, 1)
	his := y.submit(ben, "run: b")[0].ID

	if shown, err := ada.Node(t.Context(), "old"); err != nil || !shown.SingleUser || shown.Tenant != "ada" {
		t.Errorf("the node is shown as %+v: %v", shown, err)
	}

	d, err := ben.Job(t.Context(), his)
	if err != nil || d.Why == nil || !strings.Contains(d.Why.Sentence,
		"not isolated from each other on old (in use by ada)") {
		t.Fatalf("ben is told %+v: %v", d.Why, err)
	}

	n.ends(run, 0, 0)
	n.awaitRun(his, 1)

	// The operator allows it.
	earlier.MixUsers = true
	_, err = n.Report(t.Context(), api.Report{Capability: 1, Boot: "b", Seq: 9, Inventory: &earlier})
	y.must(err)
	n.awaitRun(y.submit(ada, "run: c")[0].ID, 1)
}
