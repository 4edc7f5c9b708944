package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) projectRoutes() {
	const tag, path = "projects", "/api/v1/projects/{project}"
	huma.Register(s.api, s.op("list-projects", http.MethodGet, "/api/v1/projects",
		"List projects with their members, by name", tag), s.listProjects)
	huma.Register(s.api, s.op("get-project", http.MethodGet, path, "Show a project with its members", tag), s.getProject)
	huma.Register(s.api, s.op("add-project", http.MethodPut, path,
		"Create a project, to which only its members may submit jobs", tag), s.addProject)
	remove := s.op("remove-project", http.MethodDelete, path, "Remove a project; its jobs stay", tag)
	remove.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, remove, s.removeProject)
	huma.Register(s.api, s.op("put-member", http.MethodPut, path+"/members/{user}",
		"Make a user a member of a project", tag), s.putMember)
	leave := s.op("remove-member", http.MethodDelete, path+"/members/{user}", "Remove a user from a project", tag)
	leave.DefaultStatus = http.StatusNoContent
	huma.Register(s.api, leave, s.removeMember)
}

// readProjects returns the projects that the caller may see, by name.
func (s *Server) readProjects(ctx context.Context) ([]api.Project, error) {
	type all struct { // written by the loop, perhaps after we gave up on it
		projects []tenant.Project
		members  []tenant.Member
	}

	found := &all{}
	if err := s.query(ctx, func(y *yardmaster.Yard) { found.projects, found.members = y.Projects() }); err != nil {
		return nil, err
	}

	who := callerOf(ctx)
	list := []api.Project{}
	for _, p := range found.projects {
		if !who.MayIn(tenant.ReadProjects, "", p.ID) {
			continue
		}

		one := api.Project{ID: p.ID, Created: timeOrNil(p.Created), Members: []api.Member{}}
		for _, m := range found.members {
			if m.Project == p.ID {
				one.Members = append(one.Members, api.Member{User: m.User, Lead: m.Lead})
			}
		}

		list = append(list, one)
	}

	return list, nil
}

func (s *Server) listProjects(ctx context.Context, in *struct{ Paging }) (*httpapi.Body[api.ProjectPage], error) {
	list, err := s.readProjects(ctx)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	list = slices.DeleteFunc(list, func(p api.Project) bool { return string(p.ID) <= in.Cursor })

	page := api.ProjectPage{Projects: list}
	if len(list) > in.Limit {
		page.Projects = list[:in.Limit]
		page.Next = string(list[in.Limit-1].ID)
	}

	return &httpapi.Body[api.ProjectPage]{Body: page}, nil
}

type projectInput struct {
	Project string `path:"project" maxLength:"63"`
}

func (s *Server) getProject(ctx context.Context, in *projectInput) (*httpapi.Body[api.Project], error) {
	list, err := s.readProjects(ctx)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	for i := range list {
		if string(list[i].ID) == in.Project {
			return &httpapi.Body[api.Project]{Body: list[i]}, nil
		}
	}

	return nil, s.fail(ctx, fault.New(fault.NotFound, "project_not_found", "project %s not found", in.Project).
		WithRemedy("trainyard projects lists those that you may see"))
}

func (s *Server) addProject(ctx context.Context, in *projectInput) (*httpapi.Body[api.Project], error) {
	err := allow(ctx, tenant.ManageProjects, "")
	if err == nil && !id.Name(in.Project) {
		err = fault.New(fault.Invalid, "bad_name", "invalid project name %q", in.Project).WithField("project").
			WithRemedy("use lower-case letters, digits, '-', '_' and '.', at most %d", id.MaxName)
	}

	if err == nil {
		_, err = s.do(ctx, yardmaster.PutProject{Project: id.Project(in.Project), By: string(callerOf(ctx).User)})
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return s.getProject(ctx, in)
}

func (s *Server) removeProject(ctx context.Context, in *projectInput) (*struct{}, error) {
	err := allow(ctx, tenant.ManageProjects, "")
	if err == nil {
		by := string(callerOf(ctx).User)
		_, err = s.do(ctx, yardmaster.PutProject{Project: id.Project(in.Project), Removed: true, By: by})
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return nil, nil
}

type memberInput struct {
	Project string `path:"project" maxLength:"63"`
	User    string `path:"user" maxLength:"63"`
}

// setMember adds or removes a member.
func (s *Server) setMember(ctx context.Context, m tenant.Member) error {
	if err := allow(ctx, tenant.ManageProjects, ""); err != nil {
		return err
	}

	_, err := s.do(ctx, yardmaster.PutMember{Member: m, By: string(callerOf(ctx).User)})

	return err
}

type putMemberInput struct {
	Project string `path:"project" maxLength:"63"`
	User    string `path:"user" maxLength:"63"`
	Body    api.MemberRequest
}

func (s *Server) putMember(ctx context.Context, in *putMemberInput) (*httpapi.Body[api.Project], error) {
	m := tenant.Member{Project: id.Project(in.Project), User: id.User(in.User), Lead: in.Body.Lead}
	if err := s.setMember(ctx, m); err != nil {
		return nil, s.fail(ctx, err)
	}

	return s.getProject(ctx, &projectInput{in.Project})
}

func (s *Server) removeMember(ctx context.Context, in *memberInput) (*struct{}, error) {
	m := tenant.Member{Project: id.Project(in.Project), User: id.User(in.User), Removed: true}
	if err := s.setMember(ctx, m); err != nil {
		return nil, s.fail(ctx, err)
	}

	return nil, nil
}
