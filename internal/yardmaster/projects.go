package yardmaster

import (
	"slices"

	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/tenant"
)

// PutProject gives a project a record, so that only its members may submit jobs to it, or removes it. The answer is
// the project.
type PutProject struct {
	Project id.Project
	Removed bool
	By      string
}

func (m PutProject) handle(y *Yard) (any, error) {
	y.touchData()

	if !m.Removed {
		return answer(y.people.AddProject(y.now, m.Project, m.By))
	}

	if _, limited := y.quotas.Own(tenant.Subject{Project: m.Project}); limited {
		return nil, fault.New(fault.Conflict, "project_has_quota",
			"project %s has a quota, which anybody could use up if it had no members", m.Project).
			WithRemedy("remove the quota first: trainyard quota remove project/%s", m.Project)
	}

	gone, err := y.people.RemoveProject(y.now, m.Project, m.By)
	if err == nil {
		y.removeChannelsOf(m.Project, m.By)
		y.removeSecretsOf(m.Project, m.By)
	}

	return answer(gone, err)
}

// PutMember adds a user to a project or removes them. The answer is the membership.
type PutMember struct {
	Member tenant.Member // Seq is set here
	By     string
}

func (m PutMember) handle(y *Yard) (any, error) {
	y.touchData()

	return answer(y.people.SetMember(y.now, m.Member, m.By))
}

// Projects returns the projects with a record by name, and their members by project and name.
func (y *Yard) Projects() ([]tenant.Project, []tenant.Member) { return y.people.Projects() }

// restrict gives a project a record. Its members are the owners of its jobs: those who use it go on.
func (y *Yard) restrict(name id.Project, by string) error {
	if y.people.Restricted(name) {
		return nil
	}

	if _, err := y.people.AddProject(y.now, name, by); err != nil {
		return err
	}

	y.touchData()

	var owners []id.User
	for _, r := range y.jobs {
		if _, known := y.people.User(r.Owner); known && r.Project == name {
			owners = append(owners, r.Owner)
		}
	}

	slices.Sort(owners)

	for _, u := range slices.Compact(owners) {
		if _, err := y.people.SetMember(y.now, tenant.Member{Project: name, User: u}, by); err != nil {
			return err
		}
	}

	return nil
}
