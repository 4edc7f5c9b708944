package yardmaster_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/place"
	"trainyard/internal/place/ordered"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
	"trainyard/internal/yardmaster/secrets"
)

// secretYard is a yard with a node whose agent passes secrets on, and a researcher.
func secretYard(t *testing.T) *yard {
	t.Helper()
	y := newYard(t)
	y.ok(yardmaster.PutUser{User: "bob", Role: tenant.Researcher, By: "test"})
	y.node("a", 8)
	y.ok(yardmaster.NodeReport{Node: "a", Restores: true, Secrets: true})

	return y
}

// secret stores a secret whose encrypted value is a text that the test knows.
func (y *yard) secret(of tenant.Subject, name, value string) {
	y.t.Helper()
	y.ok(yardmaster.PutSecret{By: "alice", Secret: tenant.Secret{
		Subject: of, Name: name, Sealed: tenant.Sealed{Key: "k1", DataKey: []byte("data key of " + value),
			Value: []byte(value)},
	}})
}

// secretive is a job that asks for secrets.
func secretive(names ...string) *job.Spec {
	s := spec(1)
	s.Secrets = names

	return s
}

// gets returns the encrypted values that a job gets now.
func (y *yard) gets(j id.Job) string {
	y.t.Helper()
	list, err := y.SecretsOf(j)
	if err != nil {
		return err.Error()
	}

	var values []string
	for i := range list {
		values = append(values, string(list[i].Sealed.Value))
	}

	return strings.Join(values, " ")
}

func bob() tenant.Subject { return tenant.Subject{User: "bob"} }

func TestAJobThatAsksForAnUnknownSecretIsRefused(t *testing.T) {
	t.Parallel()
	y := secretYard(t)
	y.secret(alice, "KEY", "that of alice")

	_, err := y.Step(y.now, yardmaster.Submit{Owner: "bob", Jobs: []yardmaster.NewJob{{Spec: secretive("KEY")}}})

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != "secret_not_found" || f.Field != "secrets" || !strings.Contains(f.Remedy,
		"secrets set KEY") {
		t.Errorf("error %v, want one that names the secret and the remedy", err)
	}

	if _, err := y.Rehearse(y.now, "bob", []yardmaster.Candidate{{Spec: secretive("KEY")}}); err == nil {
		t.Error("a dry run accepts it")
	}
}

func TestEveryRunGetsTheCurrentValue(t *testing.T) {
	t.Parallel()
	y := secretYard(t)
	y.secret(bob(), "KEY", "first")
	y.secret(bob(), "FILE", "a file")
	j := y.submit("bob", secretive("KEY", "FILE:file"))
	y.Round(y.now)

	b := y.Take()
	if len(b.Orders) != 1 || strings.Join(b.Orders[0].Launch.Secrets, " ") != "KEY FILE:file" {
		t.Fatalf("orders %+v, want one that names its secrets", b.Orders)
	}

	if got := y.gets(j); got != "first a file" {
		t.Errorf("it gets %q", got)
	}

	y.secret(bob(), "KEY", "second")

	if got := y.gets(j); got != "second a file" {
		t.Errorf("it gets %q after a new value was set", got)
	}
}

func TestAJobWhoseSecretIsRemovedIsHeldUntilItIsBack(t *testing.T) {
	t.Parallel()
	y := secretYard(t)
	y.secret(bob(), "KEY", "first")
	running := y.submit("bob", secretive("KEY"))
	y.Round(y.now)
	queued := y.submit("bob", secretive("KEY"))
	other := y.submit("bob", spec(1))
	y.Take()

	y.ok(yardmaster.RemoveSecret{Subject: bob(), Name: "KEY", By: "bob"})

	b := y.Take()
	if len(b.Secrets) != 1 || !b.Secrets[0].Removed || len(b.Secrets[0].Sealed.Value) > 0 {
		t.Errorf("stored %+v, want that it is gone", b.Secrets)
	}

	why, _ := y.Why(y.now, queued)
	if why.Blocker != place.BlockSecret || why.Sentence != "secret KEY not found; set it with trainyard secrets set KEY" {
		t.Errorf("it waits because of %+v", why.Why)
	}

	y.Round(y.now)

	b = y.Take()
	if len(b.Orders) != 1 || b.Orders[0].Job != other {
		t.Errorf("orders %+v, want one of the job without secrets", b.Orders)
	}

	// One that runs keeps what it has; if it is started again it is held.
	run := id.NewRun(running, 1)
	y.ok(yardmaster.NodeReport{Node: "a", Restores: true, Secrets: true, Ranks: []yardmaster.RankReport{
		{Run: run, State: job.RunRunning, Started: y.now},
		{Run: run, State: job.RunEnded, Started: y.now, Ended: y.now, Cause: job.CauseLaunchFailed,
			Reason: "secret KEY not found"},
	}})
	y.now = y.now.Add(20 * time.Second) // past the delay before a retry
	y.ok(yardmaster.Tick{})
	y.Round(y.now)

	if why, ok := y.Why(y.now, running); !ok || why.Blocker != place.BlockSecret {
		t.Errorf("a retry waits because of %+v", why.Why)
	}

	y.Take()
	y.secret(bob(), "KEY", "second")
	y.Round(y.now)

	if b := y.Take(); len(b.Orders) != 2 {
		t.Errorf("%d orders once the secret is back, want 2", len(b.Orders))
	}
}

func TestASecretThatCannotBeDecryptedHoldsItsJobs(t *testing.T) {
	t.Parallel()
	y := secretYard(t)
	y.secret(bob(), "KEY", "first")
	j := y.submit("bob", secretive("KEY"))
	b := y.Take()

	b.Secrets[0].Problem = "key k1 not found in key file /data/secrets.key"
	again := &yard{Yard: yardmaster.New(yardmaster.Defaults(ordered.FIFO{})), t: t, now: y.now}
	again.Load(y.now, yardmaster.State{
		Jobs: b.Jobs, Users: b.Users, Tokens: b.Tokens, Nodes: b.Nodes, Secrets: b.Secrets, LastJob: 1,
	})

	again.Round(again.now)

	if why, _ := again.Why(again.now, j); why.Blocker != place.BlockSecret ||
		why.Sentence != "secret KEY: key k1 not found in key file /data/secrets.key" {
		t.Errorf("it waits because of %+v", why.Why)
	}

	again.secret(bob(), "KEY", "second")

	if list := again.Secrets(); len(list) != 1 || list[0].Problem != "" || list[0].Seq != 2 {
		t.Errorf("secrets %+v", list)
	}
}

// TestSecretsOfAProjectAreForItsMembers: the name of a project without a record is a label that anybody may write,
// so it has no secrets.
func TestSecretsOfAProjectAreForItsMembers(t *testing.T) {
	t.Parallel()
	y := secretYard(t)
	vision := tenant.Subject{Project: "vision"}
	_, err := y.Step(y.now, yardmaster.PutSecret{Secret: tenant.Secret{Subject: vision, Name: "KEY"}, By: "alice"})

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != "project_not_found" {
		t.Errorf("error %v for a project without a record", err)
	}

	member := func(u id.User, removed bool) {
		y.ok(yardmaster.PutMember{Member: tenant.Member{Project: "vision", User: u, Removed: removed}, By: "alice"})
	}
	y.ok(yardmaster.PutProject{Project: "vision", By: "alice"})
	y.secret(vision, "KEY", "that of the project")

	s := secretive("KEY")
	s.Project = "vision"
	if _, err := y.Step(y.now, yardmaster.Submit{Owner: "bob", Jobs: []yardmaster.NewJob{{Spec: s}}}); err == nil {
		t.Error("a job of somebody who is no member was accepted")
	}

	other := secretive("KEY")
	other.Project = "speech"
	_, err = y.Step(y.now, yardmaster.Submit{Owner: "bob", Jobs: []yardmaster.NewJob{{Spec: other}}})
	if !errors.As(err, &f) || f.Code != "secret_not_found" {
		t.Errorf("error %v in another project", err)
	}

	member("bob", false)
	j := y.submit("bob", s)
	if got := y.gets(j); got != "that of the project" {
		t.Errorf("it gets %q", got)
	}

	y.secret(bob(), "KEY", "his own")

	if got := y.gets(j); got != "his own" {
		t.Errorf("it gets %q, want the owner's own before that of the project", got)
	}

	// One who is no longer a member does not get it, although the job was submitted before.
	y.ok(yardmaster.RemoveSecret{Subject: bob(), Name: "KEY", By: "bob"})
	member("bob", true)
	y.Take()
	y.Round(y.now)

	if b := y.Take(); len(b.Orders) > 0 || y.gets(j) != "secret KEY not found" {
		t.Errorf("orders %+v; it gets %q", b.Orders, y.gets(j))
	}

	y.ok(yardmaster.PutProject{Project: "vision", Removed: true, By: "alice"})

	if list := y.Secrets(); len(list) > 0 {
		t.Errorf("secrets %+v of a project that was removed", list)
	}
}

func TestARewrapDoesNotUndoANewValue(t *testing.T) {
	t.Parallel()
	y := secretYard(t)
	y.secret(bob(), "KEY", "first")
	y.secret(bob(), "OTHER", "other")
	stale := y.Secrets()
	y.secret(bob(), "KEY", "second")

	var list []secrets.Rewrapped
	for _, s := range stale {
		list = append(list, secrets.Rewrapped{Secret: s, Sealed: tenant.Sealed{Key: "k2", DataKey: []byte("new"),
			Value: s.Sealed.Value}})
	}

	y.ok(yardmaster.RewrapSecrets{Secrets: list, By: "alice"})

	var got []string
	for _, s := range y.Secrets() {
		got = append(got, s.Name+" "+s.Sealed.Key+" "+string(s.Sealed.Value))
	}

	if text := strings.Join(got, ", "); text != "KEY k1 second, OTHER k2 other" {
		t.Errorf("secrets: %s", text)
	}
}

func TestJobsWithSecretsAreNotSentToAgentsThatDoNotPassThemOn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.node("a", 8) // of an earlier version
	y.secret(alice, "KEY", "first")
	j := y.submit("alice", secretive("KEY"))
	y.Round(y.now)

	if b := y.Take(); len(b.Orders) > 0 {
		t.Errorf("orders %+v for an agent that ignores secrets", b.Orders)
	}

	why, _ := y.Why(y.now, j)
	if why.Blocker != place.BlockNoFit || !strings.Contains(why.Sentence,
		"agents of those that could run it are too old") {
		t.Errorf("it waits because of %+v", why.Why)
	}

	y.ok(yardmaster.NodeReport{Node: "a", Restores: true, Secrets: true})
	y.Round(y.now)

	if b := y.Take(); len(b.Orders) != 1 {
		t.Errorf("%d orders once the agent was upgraded", len(b.Orders))
	}
}

func TestEventsNameSecretsAndNothingElse(t *testing.T) {
	t.Parallel()
	y := secretYard(t)
	y.Take()
	y.secret(bob(), "KEY", "first")
	y.secret(bob(), "KEY", "second")
	y.ok(yardmaster.RemoveSecret{Subject: bob(), Name: "KEY", By: "bob"})

	var got []string
	for _, e := range y.Take().Events {
		got = append(got, e.Kind+" "+e.Actor+" "+string(e.Owner)+": "+e.Reason)
	}

	want := "secret.added alice bob: secret user/bob/KEY set by alice\n" +
		"secret.changed alice bob: secret user/bob/KEY new value set by alice\n" +
		"secret.removed bob bob: secret user/bob/KEY removed by bob"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("events:\n%s\nwant:\n%s", text, want)
	}
}

func TestAUserHasALimitedNumberOfSecrets(t *testing.T) {
	t.Parallel()
	y := secretYard(t)

	for i := range tenant.MaxSecrets {
		y.secret(bob(), "KEY_"+strings.Repeat("X", i), "value")
	}

	_, err := y.Step(y.now, yardmaster.PutSecret{Secret: tenant.Secret{Subject: bob(), Name: "MORE"}, By: "bob"})

	var f *fault.Error
	if !errors.As(err, &f) || f.Code != "too_many_secrets" {
		t.Errorf("error %v", err)
	}

	y.secret(bob(), "KEY_", "another value of one that is there")
}
