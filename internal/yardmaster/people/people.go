// Package people keeps the users, their projects and tokens, and the decayed usage of users and projects,
// by which the queue is ordered.
//
// It serves the steps submit and queue of a job's path. Of jobs it only knows how many a user
// has and how much their runs weigh; the yardmaster reports both. It checks no permission:
// the server does before it sends a message.
package people

import (
	"cmp"
	"slices"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/job"
	"trainyard/internal/queue"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
)

// People are all users and tokens. They are not safe for concurrent use.
type People struct {
	feed     *batch.Feed
	users    map[id.User]*user
	tokens   map[id.Token]*token
	projects map[id.Project]*project
	shares   queue.Shares
	charges  uint64
	last     int // greatest number of a user, also of users that a restore of the database has lost
	active   int // users with unfinished jobs when they were last listed

	changedUsers    batch.Set[*user]
	changedTokens   batch.Set[*token]
	changedProjects batch.Set[*project]
	changedMembers  batch.Set[*member]
}

type user struct {
	tenant.User
	batch.Mark
	rate  float64   // weight of the runs now
	alive int       // jobs that have not ended
	text  job.Bytes // of the specs of those
}

type token struct {
	tenant.Token
	batch.Mark
}

// New returns an empty set. Events go to the feed.
func New(feed *batch.Feed) *People {
	return &People{
		feed: feed, users: map[id.User]*user{}, tokens: map[id.Token]*token{}, projects: map[id.Project]*project{},
	}
}

// Load restores the stored users, tokens, projects and shares.
func (p *People) Load(s *batch.State) {
	p.last = max(p.last, int(s.Incarnation.Last.User))
	for _, u := range s.Users {
		p.users[u.ID] = &user{User: u}
		p.last = max(p.last, u.Number)
	}

	p.number()

	for _, t := range s.Tokens {
		p.tokens[t.ID] = &token{Token: t}
	}

	p.loadProjects(s)
	p.shares.Load(s.Shares)
}

// number gives numbers to the users that have none: those of a simulation, and of a damaged store.
func (p *People) number() {
	var none []*user
	for _, u := range p.users {
		if u.Number == 0 {
			none = append(none, u)
		}
	}

	slices.SortFunc(none, func(a, b *user) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})

	for _, u := range none {
		p.last++
		u.Number = p.last
		p.changedUser(u)
	}
}

// Number returns the number of a user, 0 if there is none of that name.
func (p *People) Number(name id.User) int {
	if u, ok := p.users[name]; ok {
		return u.Number
	}

	return 0
}

// Last returns the greatest number that a user has or had.
func (p *People) Last() int { return p.last }

// Skip lets the numbers of new users begin after this one, because those up to it may have been given to users that a
// restore of the database has lost.
func (p *People) Skip(last int) { p.last = max(p.last, last) }

// Take moves what has changed into a batch.
func (p *People) Take(b *batch.Batch) {
	b.Users = batch.Take(&p.changedUsers, b.Users, func(to *tenant.User, u *user) { *to = u.User })
	b.Tokens = batch.Take(&p.changedTokens, b.Tokens, func(to *tenant.Token, t *token) { *to = t.Token })
	b.Projects = batch.Take(&p.changedProjects, b.Projects, func(to *tenant.Project, r *project) { *to = r.Project })
	b.Members = batch.Take(&p.changedMembers, b.Members, func(to *tenant.Member, r *member) { *to = r.Member })
	b.Shares = p.shares.Take()
}

func (p *People) changedUser(u *user) {
	u.Seq++
	p.changedUsers.Add(u)
}

func (p *People) changedToken(t *token) {
	t.Seq++
	p.changedTokens.Add(t)
}

// user returns the record of a user. A damaged store may have jobs of a user that does not
// exist: such a user is treated as one without usage.
func (p *People) user(name id.User) *user {
	u, ok := p.users[name]
	if !ok {
		p.last++
		u = &user{}
		u.ID, u.Number = name, p.last
		p.users[name] = u
	}

	return u
}

// User returns a user.
func (p *People) User(name id.User) (tenant.User, bool) {
	u, ok := p.users[name]
	if !ok || u.Created.IsZero() {
		return tenant.User{}, false
	}

	return u.User, true
}

// MaySubmit reports whether a user exists and is not disabled.
func (p *People) MaySubmit(name id.User) bool {
	u, ok := p.users[name]
	return ok && !u.Disabled
}

// Alive returns how many jobs of a user have not ended.
func (p *People) Alive(name id.User) int {
	if u, ok := p.users[name]; ok {
		return u.alive
	}

	return 0
}

// JobText returns how much text the specs of those jobs have.
func (p *People) JobText(name id.User) job.Bytes { return p.user(name).text }

// Count counts jobs of a user that have not ended and the text of their specs, or with minus signs those that have.
func (p *People) Count(name id.User, jobs int, text job.Bytes) {
	u := p.user(name)
	u.alive += jobs
	u.text += text
}

// InUse visits all users with how many of their jobs have not ended and how much they
// have in use, in GPUs. It is for tests of invariants.
func (p *People) InUse(visit func(name id.User, alive int, rate float64)) {
	for name, u := range p.users {
		visit(name, u.alive, u.rate)
	}
}

// ProjectRate returns how much a project has in use, in GPUs.
func (p *People) ProjectRate(name id.Project) float64 { return p.shares.Rate(name) }

// Usage returns a user's decayed usage at a time, in GPU-seconds.
func (p *People) Usage(now time.Time, name id.User) float64 {
	u, ok := p.users[name]
	if !ok {
		return 0
	}

	return queue.Decayed(u.Usage, u.rate, now.Sub(u.UsageAt))
}

// ProjectUsage returns a project's decayed usage at a time, in GPU-seconds.
func (p *People) ProjectUsage(now time.Time, name id.Project) float64 {
	return p.shares.UsageOf(now, name)
}

// UsageByUser returns the decayed usage at a time of every user with unfinished jobs.
func (p *People) UsageByUser(now time.Time) map[id.User]float64 {
	usage := make(map[id.User]float64, p.active)
	for name, u := range p.users {
		if u.alive > 0 {
			usage[name] = queue.Decayed(u.Usage, u.rate, now.Sub(u.UsageAt))
		}
	}

	p.active = len(usage)

	return usage
}

// UsageByProject returns the decayed usage of every project at a time.
func (p *People) UsageByProject(now time.Time) map[id.Project]float64 {
	return p.shares.UsageByProject(now)
}

// Decay returns a user's usage as it goes on from now.
func (p *People) Decay(name id.User) queue.Decay {
	u, ok := p.users[name]
	if !ok {
		return queue.Decay{}
	}

	return queue.Decay{Use: u.Usage, Rate: u.rate, At: u.UsageAt}
}

// Charges counts how often the usage of a user began to go on differently.
func (p *People) Charges() uint64 { return p.charges }

// Charge changes how much a user and a project have in use now.
func (p *People) Charge(now time.Time, name id.User, project id.Project, delta float64) {
	p.charges++
	p.shares.Charge(now, project, delta)
	u := p.user(name)
	u.Usage, u.UsageAt = p.Usage(now, name), now
	u.rate += delta
	if u.rate < 1e-9 { // sums of fractions do not return to exactly zero
		u.rate = 0
	}

	p.changedUser(u)
}

// Resume counts a run that is live when the server is restarted.
func (p *People) Resume(name id.User, project id.Project, weight float64) {
	p.charges++
	p.user(name).rate += weight
	p.shares.Resume(project, weight)
}
