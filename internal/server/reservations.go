package server

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"trainyard/internal/api"
	"trainyard/internal/fleet"
	"trainyard/internal/id"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/tenant"
	"trainyard/internal/yardmaster"
)

func (s *Server) reservationRoutes() {
	const tag = "nodes"
	huma.Register(
		s.api,
		s.op("list-reservations", http.MethodGet, "/api/v1/reservations", "List reservations of nodes for users", tag),
		s.listReservations,
	)

	huma.Register(
		s.api,
		s.op("add-reservation", http.MethodPost, "/api/v1/reservations", "Set nodes aside for a user and a time", tag),
		s.addReservation,
	)

	huma.Register(
		s.api,
		s.op("end-reservation", http.MethodPost, "/api/v1/reservations/{reservation}/end",
			"End a reservation before its time", tag),
		s.endReservation,
	)
}

func (s *Server) listReservations(ctx context.Context, in *struct {
	All bool `query:"all" doc:"also those that are over"`
},
) (*httpapi.Body[api.ReservationList], error) {
	if err := allow(ctx, tenant.ReadNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	var all []fleet.Reservation
	if err := s.query(ctx, func(y *yardmaster.Yard) { all = y.Reservations() }); err != nil {
		return nil, s.fail(ctx, err)
	}

	list := api.ReservationList{Reservations: []api.Reservation{}}
	for i := range all {
		if all[i].Ended.IsZero() || in.All {
			list.Reservations = append(list.Reservations, toReservation(&all[i]))
		}
	}

	return &httpapi.Body[api.ReservationList]{Body: list}, nil
}

func toReservation(r *fleet.Reservation) api.Reservation {
	return api.Reservation{
		ID: r.ID, User: r.User, Nodes: r.Nodes, From: shown(r.From), Until: shown(r.Until), Notice: r.Notice, Why: r.Why,
		By: r.By, Ended: timeOrNil(r.Ended),
	}
}

func (s *Server) addReservation(
	ctx context.Context,
	in *struct{ Body api.ReservationRequest },
) (*httpapi.Body[api.Reservation], error) {
	if err := allow(ctx, tenant.ChangeNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	r := fleet.Reservation{
		User: id.User(in.Body.User), From: s.Clock.Now(), Until: in.Body.Until, Notice: max(in.Body.Notice, 0),
		Why: in.Body.Why, By: callerOf(ctx).User,
	}
	if in.Body.From != nil {
		r.From = *in.Body.From
	}

	for _, n := range in.Body.Nodes {
		r.Nodes = append(r.Nodes, id.Node(n))
	}

	return s.reservation(ctx, yardmaster.AddReservation{Reservation: r})
}

type reservationInput struct {
	Reservation string `path:"reservation" maxLength:"40"`
}

func (s *Server) endReservation(ctx context.Context, in *reservationInput) (*httpapi.Body[api.Reservation], error) {
	if err := allow(ctx, tenant.ChangeNodes, ""); err != nil {
		return nil, s.fail(ctx, err)
	}

	return s.reservation(ctx, yardmaster.RemoveReservation{
		Reservation: id.Reservation(in.Reservation), By: callerOf(ctx).User,
	})
}

// reservation hands a message to the loop whose answer is a reservation.
func (s *Server) reservation(ctx context.Context, m yardmaster.Message) (*httpapi.Body[api.Reservation], error) {
	answer, err := s.do(ctx, m)
	if err != nil {
		return nil, s.fail(ctx, err)
	}

	r, _ := answer.(fleet.Reservation)

	return &httpapi.Body[api.Reservation]{Body: toReservation(&r)}, nil
}
