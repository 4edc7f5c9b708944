package people

import (
	"slices"
	"strings"
	"time"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster/batch"
)

// project is a project that has, or had, a record. Those who left it stay in it, marked as removed, so that the numbers
// of their changes go on.
type project struct {
	tenant.Project
	batch.Mark
	members map[id.User]*member
}

type member struct {
	tenant.Member
	batch.Mark
}

func (p *People) loadProjects(s *batch.State) {
	for _, stored := range s.Projects {
		p.projects[stored.ID] = &project{Project: stored, members: map[id.User]*member{}}
	}

	for _, stored := range s.Members {
		if r, ok := p.projects[stored.Project]; ok {
			r.members[stored.User] = &member{Member: stored}
		}
	}
}

// known returns a project with a record.
func (p *People) known(name id.Project) (*project, bool) {
	r, ok := p.projects[name]

	return r, ok && !r.Removed
}

// Restricted reports whether a project has a record, so that it is for its members only.
func (p *People) Restricted(name id.Project) bool {
	_, ok := p.known(name)

	return ok
}

// AddProject gives a project a record.
func (p *People) AddProject(now time.Time, name id.Project, by string) (tenant.Project, error) {
	if p.Restricted(name) {
		return tenant.Project{}, fault.New(fault.Conflict, "project_exists", "project %s already exists", name)
	}

	r, ok := p.projects[name]
	if !ok {
		r = &project{members: map[id.User]*member{}}
		p.projects[name] = r
	}

	r.ID, r.Created, r.Removed = name, now, false
	p.changedProject(r)
	p.feed.Add(now, batch.Event{Kind: "project.added", Actor: by, To: string(name),
		Reason: "project " + string(name) + " added by " + by + "; only its members may submit jobs to it"})

	return r.Project, nil
}

// RemoveProject removes the record of a project and its members: the name is a free label again.
func (p *People) RemoveProject(now time.Time, name id.Project, by string) (tenant.Project, error) {
	r, ok := p.known(name)
	if !ok {
		return tenant.Project{}, projectNotFound(name)
	}

	for _, m := range r.list() {
		m.Removed, m.Lead = true, false
		p.changedMember(m)
	}

	r.Removed = true
	p.changedProject(r)
	p.feed.Add(now, batch.Event{Kind: "project.removed", Actor: by, To: string(name),
		Reason: "project " + string(name) + " removed by " + by})

	return r.Project, nil
}

// SetMember adds a user to a project, as a lead or not, or removes them.
func (p *People) SetMember(now time.Time, m tenant.Member, by string) (tenant.Member, error) {
	r, ok := p.known(m.Project)
	if !ok {
		return m, projectNotFound(m.Project)
	}
	if _, ok := p.User(m.User); !ok {
		return m, fault.New(fault.NotFound, "user_not_found", "user %s not found", m.User).WithField("user")
	}

	k, ok := r.members[m.User]
	if !ok {
		if m.Removed {
			return m, notMember(m.Project, m.User)
		}

		k = &member{}
		r.members[m.User] = k
	} else if m.Removed && k.Removed {
		return m, notMember(m.Project, m.User)
	}

	k.Project, k.User, k.Lead, k.Removed = m.Project, m.User, m.Lead && !m.Removed, m.Removed
	p.changedMember(k)

	kind, what := "project.member_added", "is a member"
	switch {
	case k.Removed:
		kind, what = "project.member_removed", "is no longer a member"
	case k.Lead:
		what = "is a lead"
	}

	p.feed.Add(now, batch.Event{Kind: kind, Actor: by, Owner: m.User, To: string(m.Project),
		Reason: string(m.User) + " " + what + " of project " + string(m.Project) + ", set by " + by})

	return k.Member, nil
}

// list returns the members, by name.
func (r *project) list() []*member {
	var all []*member
	for _, m := range r.members {
		if !m.Removed {
			all = append(all, m)
		}
	}

	slices.SortFunc(all, func(a, b *member) int { return strings.Compare(string(a.User), string(b.User)) })

	return all
}

// Projects returns the projects with a record by name, and their members by project and name.
func (p *People) Projects() (projects []tenant.Project, members []tenant.Member) {
	for _, r := range p.projects {
		if !r.Removed {
			projects = append(projects, r.Project)
		}
	}

	slices.SortFunc(projects, func(a, b tenant.Project) int { return strings.Compare(string(a.ID), string(b.ID)) })

	for _, one := range projects {
		for _, m := range p.projects[one.ID].list() {
			members = append(members, m.Member)
		}
	}

	return projects, members
}

// Member reports whether a user is a member of a project.
func (p *People) Member(u id.User, name id.Project) bool {
	r, ok := p.known(name)
	if !ok {
		return false
	}

	m, ok := r.members[u]

	return ok && !m.Removed
}

// MayUse refuses a user a project that has a record unless they are a member of it. leads says whether they lead it.
func (p *People) MayUse(u id.User, name id.Project) (leads bool, err error) {
	r, ok := p.known(name)
	if !ok {
		return false, nil
	}

	m, ok := r.members[u]
	if !ok || m.Removed {
		return false, fault.New(fault.Denied, "not_a_member", "permission denied: %s is not a member of project %s", u, name).
			WithField("project").
			WithRemedy("ask an admin to add you: trainyard projects members %s --add %s", name, u)
	}

	return m.Lead, nil
}

// CheckSubmit refuses a job of a user in a project if the project is not theirs, or the priority is higher than
// they may use there.
func (p *People) CheckSubmit(u id.User, name id.Project, priority int, caps tenant.Caps) error {
	leads, err := p.MayUse(u, name)
	if err != nil {
		return err
	}

	highest, capped := caps.Of(&p.user(u).User, leads)
	if !capped || priority <= highest {
		return nil
	}

	return fault.New(fault.Denied, "priority_too_high",
		"permission denied: %s cannot submit jobs of priority %d, at most %d", u, priority, highest).
		WithField("priority").
		WithRemedy("use a lower priority, or ask an admin for more: trainyard users priority %s %d", u, priority)
}

func (p *People) changedProject(r *project) {
	r.Seq++
	p.changedProjects.Add(r)
}

func (p *People) changedMember(m *member) {
	m.Seq++
	p.changedMembers.Add(m)
}

func projectNotFound(name id.Project) error {
	return fault.New(fault.NotFound, "project_not_found", "project %s not found", name).
		WithRemedy("trainyard projects lists them")
}

func notMember(project id.Project, u id.User) error {
	return fault.New(fault.NotFound, "member_not_found", "%s is not a member of project %s", u, project)
}
