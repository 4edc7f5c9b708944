package api

import (
	"context"
	"net/http"
	"time"

	"trainyard/internal/id"
)

// Project is a project with members: nobody else may submit jobs to it.
type Project struct {
	ID      id.Project `json:"id"`
	Created *time.Time `json:"created,omitempty" doc:"absent if an upgrade of the yard made it, because it had a quota"`
	Members []Member   `json:"members" doc:"by name"`
}

// Member is a member of a project.
type Member struct {
	User id.User `json:"user"`
	Lead bool    `json:"lead,omitempty" doc:"may read and change the jobs of the project and see its usage"`
}

// ProjectPage is one page of a list of projects, by name.
type ProjectPage struct {
	Projects []Project `json:"projects"`
	Next     string    `json:"next,omitempty"`
}

// MemberRequest makes a user a member of a project.
type MemberRequest struct {
	Lead bool `json:"lead,omitempty"`
}

// Projects returns one page of the projects that the caller may see, by name.
func (c *Client) Projects(ctx context.Context, p Page) (ProjectPage, error) {
	return get[ProjectPage](ctx, c, at("projects"), p.query())
}

// Project returns one project.
func (c *Client) Project(ctx context.Context, p id.Project) (Project, error) {
	return get[Project](ctx, c, at("projects", string(p)), nil)
}

// AddProject makes a project that is for its members only.
func (c *Client) AddProject(ctx context.Context, p id.Project) (Project, error) {
	return put[Project](ctx, c, at("projects", string(p)), nil)
}

// RemoveProject makes the name of a project a label again that anybody may use.
func (c *Client) RemoveProject(ctx context.Context, p id.Project) error {
	return c.call(ctx, http.MethodDelete, at("projects", string(p)), nil, nil, nil)
}

// PutMember makes a user a member of a project.
func (c *Client) PutMember(ctx context.Context, p id.Project, u id.User, in MemberRequest) (Project, error) {
	return put[Project](ctx, c, at("projects", string(p), "members", string(u)), in)
}

// RemoveMember removes a user from a project.
func (c *Client) RemoveMember(ctx context.Context, p id.Project, u id.User) error {
	return c.call(ctx, http.MethodDelete, at("projects", string(p), "members", string(u)), nil, nil, nil)
}
