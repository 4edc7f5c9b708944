package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) userRoutes() {
	huma.Register(
		s.api,
		huma.Operation{
			OperationID: "list-users",
			Method:      http.MethodGet,
			Path:        "/api/v1/users",
			Summary:     "List users by name",
			Security:    byToken,
			Tags:        []string{"access"},
		},
		s.listUsers,
	)

	huma.Register(
		s.api,
		huma.Operation{OperationID: "get-user", Method: http.MethodGet, Path: "/api/v1/users/{user}", Summary: "Show a user",
			Security: byToken, Tags: []string{"access"}},
		s.getUser,
	)

	huma.Register(
		s.api,
		huma.Operation{
			OperationID: "put-user",
			Method:      http.MethodPut,
			Path:        "/api/v1/users/{user}",
			Summary:     "Create or update a user",
			Security:    byToken,
			Tags:        []string{"access"},
		},
		s.putUser,
	)
}

func (s *Server) listUsers(ctx context.Context, in *struct{ Paging }) (*httpapi.Body[api.UserPage], error) {
	if err := allow(ctx, tenant.ManageUsers, ""); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	users, err := s.Store.Users(ctx, id.User(in.Cursor), in.Limit+1)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	page := api.UserPage{Users: []api.User{}}
	if len(users) > in.Limit {
		users = users[:in.Limit]
		page.Next = string(users[len(users)-1].ID)
	}

	err = s.query(ctx, func(y *yardmaster.Yard) {
		for i := range users {
			page.Users = append(page.Users, toUser(&users[i], y.Usage(s.Clock.Now(), users[i].ID)))
		}
	})
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.UserPage]{Body: page}, nil
}

// UserInput names a user in a path.
type UserInput struct {
	User string `path:"user" maxLength:"63"`
}

func (s *Server) getUser(ctx context.Context, in *UserInput) (*httpapi.Body[api.User], error) {
	if in.User != string(callerOf(ctx).User) {
		if err := allow(ctx, tenant.ManageUsers, ""); err != nil {
			return nil, httpapi.ToProblem(err)
		}
	}

	var out *api.User
	err := s.query(ctx, func(y *yardmaster.Yard) {
		if u, ok := y.User(id.User(in.User)); ok {
			shown := toUser(&u, y.Usage(s.Clock.Now(), u.ID))
			out = &shown
		}
	})

	if err == nil && out == nil {
		err = fault.New(fault.NotFound, "user_not_found", "there is no user %s", in.User)
	}

	if err != nil {
		return nil, s.fail(ctx, err)
	}

	return &httpapi.Body[api.User]{Body: *out}, nil
}

type putUserInput struct {
	UserInput
	Body api.UserRequest
}

func (s *Server) putUser(ctx context.Context, in *putUserInput) (*httpapi.Body[api.User], error) {
	if err := allow(ctx, tenant.ManageUsers, ""); err != nil {
		return nil, httpapi.ToProblem(err)
	}

	if !id.Name(in.User) {
		return nil, httpapi.ToProblem(fault.New(fault.Invalid, "bad_name", "invalid user name %q", in.User).WithField("user").
			WithRemedy("use lower-case letters, digits, '-', '_' and '.', at most %d", id.MaxName))
	}

	if !in.Body.Disabled {
		if err := s.allowPerson(ctx, id.User(in.User)); err != nil {
			return nil, s.fail(ctx, err)
		}
	}

	answer, err := s.do(
		ctx,
		yardmaster.PutUser{
			User:        id.User(in.User),
			Role:        in.Body.Role,
			Disabled:    in.Body.Disabled,
			MaxPriority: in.Body.MaxPriority,
			By:          string(callerOf(ctx).User),
		},
	)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	u, _ := answer.(tenant.User)

	return &httpapi.Body[api.User]{Body: toUser(&u, u.Usage)}, nil
}

// allowPerson refuses to let another person use a yard whose jobs can do whatever the person can who started it.
// Users who are there already may be changed.
func (s *Server) allowPerson(ctx context.Context, name id.User) error {
	if !s.Personal || name == callerOf(ctx).User {
		return nil
	}

	known := false

	err := s.query(ctx, func(y *yardmaster.Yard) {
		u, ok := y.User(name)
		known = ok && !u.Disabled
	})
	if err != nil || known {
		return err
	}

	return personalYard(name)
}

// personalYard is why a person may not use a yard.
func personalYard(name id.User) error {
	return fault.New(fault.Conflict, "personal_yard",
		"%s cannot use this yard: its jobs run under the account of the person who started it with trainyard up, and could "+
			"read and change everything of theirs", name).
		WithRemedy("start it as root with trainyard up --isolation users, or run trainyard server and agents on machines " +
			"of their own; trainyard up --mix-users yes accepts the risk")
}
