package tenant

import (
	"time"

	"trainyard/internal/id"
)

// Project is a project with a record: only its members may submit jobs to it. The name of a project without one is a
// label that anybody may use.
type Project struct {
	ID      id.Project `json:"id"`
	Seq     uint64     `json:"seq"`
	Created time.Time  `json:"created,omitzero"`
	Removed bool       `json:"removed,omitempty"`
}

// Member is a user's membership of a project.
type Member struct {
	Project id.Project `json:"project"`
	User    id.User    `json:"user"`
	Seq     uint64     `json:"seq"`
	Lead    bool       `json:"lead,omitempty"`
	Removed bool       `json:"removed,omitempty"`
}

// Caps are the highest priorities of the jobs that users may submit, by their role. A role that is not in it has no
// cap.
type Caps struct {
	Role map[Role]int
	Lead int // in the projects that they lead, where that is more than by their role
}

// Of returns the highest priority of the jobs of a user, who leads the job's project or does not; false if there is no
// cap.
func (c Caps) Of(u *User, leads bool) (int, bool) {
	if u.MaxPriority != nil {
		return *u.MaxPriority, true
	}

	highest, ok := c.Role[u.Role]
	if leads {
		highest = max(highest, c.Lead)
	}

	return highest, ok
}
