package people_test

import (
	"errors"
	"maps"
	"math"
	"testing"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
	"trainyard/internal/yardmaster/people"
)

var start = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

func some(t *testing.T) *people.People {
	t.Helper()
	p := people.New(&batch.Feed{})
	for _, name := range []id.User{"root", "ada"} {
		if _, err := put(p, name, tenant.Researcher, false, "test"); err != nil {
			t.Fatal(err)
		}
	}

	if _, err := put(p, "root", tenant.Admin, false, "test"); err != nil {
		t.Fatal(err)
	}

	return p
}

func put(p *people.People, name id.User, role tenant.Role, disabled bool, by string) (tenant.User, error) {
	return p.Put(start, name, people.Change{Role: role, Disabled: disabled}, by)
}

func code(err error) string {
	var f *fault.Error
	if errors.As(err, &f) {
		return f.Code
	}

	return ""
}

func TestTheLastAdminStaysOne(t *testing.T) {
	t.Parallel()
	p := some(t)
	if _, err := put(p, "root", tenant.Researcher, false, "root"); code(err) != "last_admin" {
		t.Errorf("made a researcher: %v", err)
	}

	if _, err := put(p, "root", tenant.Admin, true, "root"); code(err) != "last_admin" {
		t.Errorf("disabled: %v", err)
	}

	if _, err := put(p, "ada", tenant.Admin, false, "root"); err != nil {
		t.Fatal(err)
	}

	if _, err := put(p, "root", tenant.Researcher, false, "ada"); err != nil {
		t.Errorf("with another admin: %v", err)
	}
}

func TestATokenIsUsedAsOftenAsItMayBe(t *testing.T) {
	t.Parallel()
	p := some(t)

	boot := tenant.Token{
		ID:       "boot",
		Kind:     tenant.BootstrapToken,
		Owner:    "root",
		UsesLeft: 1,
		Expires:  start.Add(time.Hour),
	}

	access := tenant.Token{ID: "access", Kind: tenant.AccessToken, Expires: start.Add(time.Hour)}

	if _, err := p.AddToken(start, boot, "", "test"); err != nil {
		t.Fatal(err)
	}

	if _, err := p.AddToken(start, boot, "", "test"); code(err) != "token_exists" {
		t.Errorf("handed out twice: %v", err)
	}

	taken := access
	taken.ID = "boot"
	if _, err := p.Exchange(start, "boot", taken); code(err) != "token_exists" {
		t.Errorf("exchanged for a name that is taken: %v", err)
	}

	got, err := p.Exchange(start, "boot", access)
	if err != nil || got.Owner != "root" {
		t.Fatalf("exchanged for %+v: %v", got, err)
	}

	access.ID = "second"
	if _, err := p.Exchange(start, "boot", access); code(err) != "token_used_up" {
		t.Errorf("exchanged again: %v", err)
	}

	if _, err := p.Use(start, "access"); code(err) != "token_used_up" {
		t.Errorf("an access token used to join: %v", err)
	}
}

func TestUseIsForgottenAndGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	p := some(t)
	p.Charge(start, "ada", "vision", 2)

	later := start.Add(time.Hour)
	if got := p.Usage(later, "ada"); math.Abs(got-2*3600) > 30 {
		t.Errorf("an hour of two GPUs counts %g", got)
	}

	p.Charge(later, "ada", "vision", -1)
	var b batch.Batch
	p.Take(&b)
	next := people.New(&batch.Feed{})
	next.Load(&batch.State{Users: b.Users, Shares: b.Shares})
	next.Resume("ada", "vision", 1)

	for _, at := range []time.Time{later, later.Add(queue.HalfLife)} {
		if before, after := p.Usage(at, "ada"), next.Usage(at, "ada"); before != after {
			t.Errorf("at %s ada has used %g, and %g after a restart", at, before, after)
		}

		if before, after := p.ProjectUsage(at, "vision"), next.ProjectUsage(at, "vision"); before != after {
			t.Errorf("at %s the project has used %g, and %g after a restart", at, before, after)
		}
	}
}

func TestAnOwnerThatIsNotThereIsCountedButIsNoUser(t *testing.T) {
	t.Parallel()
	p := some(t)
	p.Count("ghost", 1, 0)

	if _, known := p.User("ghost"); known || p.Alive("ghost") != 1 {
		t.Errorf("known %v with %d jobs", known, p.Alive("ghost"))
	}

	if p.MaySubmit("nobody") || !p.MaySubmit("ada") {
		t.Error("who may submit is wrong")
	}

	if _, err := p.AddToken(start, tenant.Token{ID: "t", Owner: "ghost"}, "", "test"); code(err) != "user_not_found" {
		t.Errorf("a token for a ghost: %v", err)
	}
}

// A token that was revoked while a request was on its way creates no other.
func TestARevokedTokenCreatesNone(t *testing.T) {
	t.Parallel()
	p := some(t)
	parent := tenant.Token{ID: "parent", Kind: tenant.AccessToken, Owner: "ada", Expires: start.Add(time.Hour)}
	child := tenant.Token{ID: "child", Kind: tenant.AccessToken, Owner: "ada", Expires: start.Add(2 * time.Hour)}

	if _, err := p.AddToken(start, parent, "", "test"); err != nil {
		t.Fatal(err)
	}

	got, err := p.AddToken(start, child, "parent", "ada")
	if err != nil || got.Parent != "parent" || !got.Expires.Equal(parent.Expires) {
		t.Errorf("the child ends with %q at %s: %v", got.Parent, got.Expires, err)
	}

	if _, err := p.Revoke(start, "parent", "ada"); err != nil {
		t.Fatal(err)
	}

	child.ID = "late"
	if _, err := p.AddToken(start, child, "parent", "ada"); code(err) != "token_revoked" {
		t.Errorf("created with a revoked token: %v", err)
	}

	var b batch.Batch
	p.Take(&b)

	for _, k := range b.Tokens {
		if !k.Revoked {
			t.Errorf("token %s is not revoked", k.ID)
		}
	}
}

func TestMembersComeAndGo(t *testing.T) {
	t.Parallel()
	p := some(t)
	set := func(u id.User, lead, removed bool) error {
		_, err := p.SetMember(start, tenant.Member{Project: "vision", User: u, Lead: lead, Removed: removed}, "root")
		return err
	}

	if leads, err := p.MayUse("ada", "vision"); leads || err != nil {
		t.Errorf("a label: %v, %v", leads, err)
	}

	if err := set("ada", false, false); code(err) != "project_not_found" {
		t.Errorf("a member of a label: %v", err)
	}

	if _, err := p.AddProject(start, "vision", "root"); err != nil {
		t.Fatal(err)
	}

	if _, err := p.AddProject(start, "vision", "root"); code(err) != "project_exists" {
		t.Errorf("added again: %v", err)
	}

	if _, err := p.MayUse("ada", "vision"); code(err) != "not_a_member" {
		t.Errorf("nobody is a member yet: %v", err)
	}

	if err := set("ghost", false, false); code(err) != "user_not_found" {
		t.Errorf("a member who is no user: %v", err)
	}

	if err := set("ada", true, false); err != nil {
		t.Error(err)
	}

	if leads, err := p.MayUse("ada", "vision"); !leads || err != nil {
		t.Errorf("a lead: %v, %v", leads, err)
	}

	if err := set("ada", false, true); err != nil {
		t.Error(err)
	}

	if err := set("ada", false, true); code(err) != "member_not_found" {
		t.Errorf("removed again: %v", err)
	}

	if _, err := p.RemoveProject(start, "vision", "root"); err != nil {
		t.Error(err)
	}

	if _, err := p.MayUse("ada", "vision"); err != nil {
		t.Errorf("a label again: %v", err)
	}

	if _, err := p.AddProject(start, "vision", "root"); err != nil {
		t.Errorf("added anew: %v", err)
	}
}

// numbersOf returns the numbers of users, from what is stored.
func numbersOf(p *people.People) map[id.User]int {
	var b batch.Batch
	p.Take(&b)

	numbers := map[id.User]int{}
	for i := range b.Users {
		numbers[b.Users[i].ID] = b.Users[i].Number
	}

	return numbers
}

func TestANumberIsOneUsersForEver(t *testing.T) {
	t.Parallel()
	p := some(t)

	if p.Number("root") != 1 || p.Number("ada") != 2 || p.Number("nobody") != 0 {
		t.Errorf("root has %d, ada %d, nobody %d", p.Number("root"), p.Number("ada"), p.Number("nobody"))
	}

	if u, err := put(p, "ada", tenant.Researcher, true, "root"); err != nil || u.Number != 2 {
		t.Errorf("disabled, ada has number %d: %v", u.Number, err)
	}

	// After a restart with the database of a time when ada did not exist, in a new incarnation.
	next := people.New(&batch.Feed{})
	last := batch.Incarnation{Number: 2, Last: batch.Numbers{User: 100}}
	next.Load(&batch.State{Users: []tenant.User{{ID: "root", Number: 1, Created: start}}, Incarnation: last})

	if u, err := put(next, "bob", tenant.Researcher, false, "root"); err != nil || u.Number != 101 {
		t.Errorf("after a restore bob has number %d: %v", u.Number, err)
	}

	next.Skip(200)

	if u, err := put(next, "cy", tenant.Researcher, false, "root"); err != nil || u.Number != 201 {
		t.Errorf("after another restore cy has number %d: %v", u.Number, err)
	}
}

func TestUsersWithoutANumberGetOneByAge(t *testing.T) {
	t.Parallel()
	p := people.New(&batch.Feed{})
	p.Load(&batch.State{Users: []tenant.User{
		{ID: "zoe", Created: start}, {ID: "ada", Created: start}, {ID: "root", Number: 7, Created: start},
		{ID: "old", Created: start.Add(-time.Hour)},
	}})

	want := map[id.User]int{"old": 8, "ada": 9, "zoe": 10}
	if got := numbersOf(p); !maps.Equal(got, want) {
		t.Errorf("stored with numbers %v, want %v", got, want)
	}
}
